"""The ingest command: files, rows and profiles."""
