"""Administration: API keys, erasure and embedding switch."""
