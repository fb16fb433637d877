"""Responses of OpenAI's API: requests, answers, events, and stored responses."""
