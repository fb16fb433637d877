"""OpenAI's API over our own: model names, formats and errors that its clients know."""
