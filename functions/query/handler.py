"""The HTTP API as a Lambda function: streamed by our runtime, or buffered (``VECTORFORGE_RESPONSE_MODE``)."""

import gc

gc.disable()  # nothing that imports make is garbage, and looking for it takes time

from vectorforge.aws.handlers.query import QueryFunction  # noqa: E402 - as said above

handler = QueryFunction()
gc.freeze()  # https://docs.python.org/3/library/gc.html#gc.freeze: later collections need not look again
gc.enable()
