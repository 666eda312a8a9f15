"""Run training: the loop, its folder and checkpoints, and what a person sees of it."""
