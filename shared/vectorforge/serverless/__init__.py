"""What each Lambda function does with its events; ``functions/<name>/handler.py`` only names it."""
