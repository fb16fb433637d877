"""LLM and embedding vendors on sockets, speaking their real protocols; and providers that follow a script."""
