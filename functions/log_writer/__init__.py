"""The log-writer function."""
