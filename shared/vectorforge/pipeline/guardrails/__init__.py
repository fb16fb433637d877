"""Guardrails: links removed from answers, secrets redacted from logs."""
