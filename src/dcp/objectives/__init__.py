"""Array maths of the losses, each the size of its equation."""
