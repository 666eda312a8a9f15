"""Many runs as one command: a grid file becomes jobs, a launcher runs them, run folders tell how they stand."""
