"""The API on a real socket, and its clients."""
