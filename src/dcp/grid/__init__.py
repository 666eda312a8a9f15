"""Many runs as one command: a grid file becomes jobs, a launcher runs them, and the run folders hold their progress."""
