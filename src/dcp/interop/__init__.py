"""Other libraries' interfaces to our environments and policies: Gymnasium, Stable-Baselines3."""
