"""The HTTP API as a Lambda function: streamed by our runtime, or buffered (``VECTORFORGE_RESPONSE_MODE``)."""

from vectorforge.serverless.query import QueryFunction

handler = QueryFunction()
