"""What psi is, and what trains it."""
