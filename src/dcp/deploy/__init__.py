"""A trained policy, away from its training."""
