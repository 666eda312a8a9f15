"""The parts of the robot loop, each small enough to be read before it moves something. NumPy alone."""
