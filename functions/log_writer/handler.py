"""Query logs from SQS into the table."""

import gc

gc.disable()  # imports create no garbage, and collections take 4 to 12 % of a start

from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction  # noqa: E402 - after gc.disable

handler = QueryLogWriterFunction()
gc.freeze()  # later collections skip these objects
gc.enable()
