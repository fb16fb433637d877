"""Question in, ranked passages out. Never calls a language model."""
