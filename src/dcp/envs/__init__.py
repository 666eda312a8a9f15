"""Environments: one protocol, one registry, one file per body."""
