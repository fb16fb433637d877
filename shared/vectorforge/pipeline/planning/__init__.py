"""Search in several steps: sub-queries by a model, by rules or from the request, within a budget."""
