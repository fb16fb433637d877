"""Fallbacks: the degradation ladder, shorter prompts, quoted answers."""
