"""Extractive answers: quote the best sentences of the chunks, without a model."""
