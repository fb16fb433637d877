"""Vector stores of OpenAI's API, which are collections, and the files in them."""
