"""One file for each kind of embedding endpoint."""
