"""Test doubles, servers and tools shared by the tests."""
