"""Ingestion jobs: claim, run, report."""
