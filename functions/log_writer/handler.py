"""Query logs from SQS into the table."""

from vectorforge.serverless.query_log_writer import QueryLogWriterFunction

handler = QueryLogWriterFunction()
