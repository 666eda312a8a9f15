"""A run in time and on disk: the loop, its folder and checkpoints, what a person sees of it."""
