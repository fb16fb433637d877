"""The production templates, changed to what the emulators can deploy."""
