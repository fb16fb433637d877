"""Fake LLM and embedding vendors with their real protocols on sockets, and scripted providers."""
