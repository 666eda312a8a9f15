"""The loop, its run folder and its display."""
