import dcp.gym  # noqa: F401  (registers the ids)
