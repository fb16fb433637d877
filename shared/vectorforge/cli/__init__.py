"""The vectorforge command."""
