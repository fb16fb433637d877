"""Question in, cited answer out."""
