"""A policy as one file that runs without dcp: one small module a form, `write` puts them together."""
