"""Documents of every supported format, made in memory, with what a reader should find in them."""
