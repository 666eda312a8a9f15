"""Read run folders and policies, and make tables and pictures of them. Nothing here imports the trainer."""
