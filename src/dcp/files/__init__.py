"""Files that strangers may have written, read with bounds; what a run folder holds."""
