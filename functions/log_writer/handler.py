"""Query logs from SQS into the table."""

from vectorforge.aws.handlers.query_log_writer import QueryLogWriterFunction

handler = QueryLogWriterFunction()
