"""Readers of formats: bytes to blocks; all but those of plain text run in the child process only."""
