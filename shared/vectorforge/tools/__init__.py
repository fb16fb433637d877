"""What an agent may call: searches of one profile, and their descriptions for language models."""
