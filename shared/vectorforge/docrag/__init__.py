"""What the DocRag engine has of its own: its configuration, its errors, its documents."""
