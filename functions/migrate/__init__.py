"""The migrate function."""
