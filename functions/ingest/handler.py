"""Carries out ingestion jobs announced through SQS, and takes in documents uploaded to S3."""

import gc

gc.disable()  # imports create no garbage, and collections take 4 to 12 % of a start

from vectorforge.aws.handlers.ingest import IngestFunction  # noqa: E402 - after gc.disable

handler = IngestFunction()
gc.freeze()  # later collections skip these objects
gc.enable()
