"""Reads run folders and policies, and makes tables and pictures of them. Never imports the trainer."""
