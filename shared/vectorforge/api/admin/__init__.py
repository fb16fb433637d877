"""Administration: API keys, erasure, embedding switch, cache."""
