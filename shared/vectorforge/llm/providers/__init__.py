"""One file for each vendor."""
