"""Answers HTTP requests: the API behind API Gateway or a function URL, each response in one piece."""
