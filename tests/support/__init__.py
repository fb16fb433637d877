"""Test doubles and tools: faithful stand-ins for what is out of reach, and servers to test against."""
