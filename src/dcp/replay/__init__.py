"""A ring of rows, and future goals from it. Pure functions over a state."""
