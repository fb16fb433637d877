"""Carries out ingestion jobs announced through SQS, and takes in documents uploaded to S3."""

from vectorforge.aws.handlers.ingest import IngestFunction

handler = IngestFunction()
