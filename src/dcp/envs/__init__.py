"""Environments: one protocol, one registry, one file a body or task."""
