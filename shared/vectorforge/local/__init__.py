"""Embedded PostgreSQL and the setup of one machine."""
