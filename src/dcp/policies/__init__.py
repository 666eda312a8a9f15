"""A policy away from its run: in memory, in a file, exported."""
