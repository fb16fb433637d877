"""The native API: /v1/rag, collections, documents, jobs, search, statistics."""
