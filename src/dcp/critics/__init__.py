"""Critics: what psi is, and what trains it."""
