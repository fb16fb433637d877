"""OpenAI's API on top of the native one: model names, formats and errors of its clients."""
