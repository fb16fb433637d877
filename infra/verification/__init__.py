"""Verification of a deployed stage: the points of docs/results/unverified.md that a program can check."""
