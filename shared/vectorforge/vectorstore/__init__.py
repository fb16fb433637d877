"""Where chunks and their vectors are kept and searched."""
