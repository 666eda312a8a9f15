"""The command line: the commands, those that show the same things in one file."""
