"""Other libraries' interfaces to our environments and policies: Gymnasium, Stable-Baselines3, Brax, Minari, the Hub."""
