"""Adapters to AWS services: queues, secrets, metrics and traces. Nothing else imports boto3 or Powertools."""
