"""The HTTP API as a Lambda function: streamed by our runtime, or buffered (``VECTORFORGE_RESPONSE_MODE``)."""

import gc

gc.disable()  # imports create no garbage, and collections take time

from vectorforge.aws.handlers.query import QueryFunction  # noqa: E402 - after gc.disable

handler = QueryFunction()
gc.freeze()  # https://docs.python.org/3/library/gc.html#gc.freeze: later collections skip these objects
gc.enable()
