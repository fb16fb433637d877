"""Production templates, changed for LocalStack."""
