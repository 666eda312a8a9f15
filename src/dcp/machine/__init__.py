"""How this machine runs an algorithm: its devices, XLA's options, compiled programs."""
