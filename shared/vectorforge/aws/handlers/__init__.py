"""Handlers of the Lambda functions."""
