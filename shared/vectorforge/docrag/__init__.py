"""DocRag engine: documents and answers as dictionaries, with its own configuration and errors."""
