"""The doctor command: checks of configuration, database, vendors and storage."""
