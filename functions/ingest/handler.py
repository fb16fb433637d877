"""Carries out ingestion jobs announced through SQS, and takes in documents uploaded to S3."""

from vectorforge.serverless.ingest import IngestFunction

handler = IngestFunction()
