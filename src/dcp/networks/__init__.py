"""Encoders and actor."""
