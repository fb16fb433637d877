"""Tools for agents: search of one profile, and the tools' schemas for language models."""
