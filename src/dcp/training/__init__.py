"""The trainer and its compiled programs."""
