"""What the paper published, as data."""
