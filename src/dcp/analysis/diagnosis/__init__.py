"""What `dcp diagnose` found: its file, its words, its figures, and its section of the report."""
