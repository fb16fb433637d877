"""The library's log lines as JSON, as CloudWatch Logs Insights reads them."""

import logging
from typing import TYPE_CHECKING

from vectorforge.failure_log import describe
from vectorforge.telemetry import CREDENTIAL, REQUEST_ID

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

_LIBRARY = "vectorforge"


def structure_logs(service: str) -> "Logger":
    """Print what the loggers of ``vectorforge`` say as JSON, one object a line, on standard output.

    Each line has timestamp, level, logger (``name``), message, ``service``, X-Ray trace id and, while a
    request is answered, ``correlation_id``: its ``X-Request-Id``, and ``credential``: the name of the key or
    identity that asks, never the key itself. Exceptions are shown by type and place,
    since their texts may hold keys, URLs or rows. The level is INFO, or what ``POWERTOOLS_LOG_LEVEL`` or the
    function's log level says. Other libraries keep the handler of Lambda's runtime on the root logger.

    Args:
        service: Name of the function, e.g. "query".

    Returns:
        Powertools' logger, to which keys of the invocation can be added.
    """
    from aws_lambda_powertools import Logger

    library_logger = logging.getLogger(_LIBRARY)
    # The root logger has a handler of Lambda's runtime, which would print every line once more; Powertools'
    # own filter against that is for handlers that are there already.
    library_logger.propagate = False
    # Powertools configures the logger named like its service, so the name of the function comes after.
    logger = Logger(service=_LIBRARY, utc=True, use_rfc3339=True, name="%(name)s")
    logger.append_keys(service=service)
    handler = library_logger.handlers[0]
    if not any(isinstance(present, _LineFilter) for present in handler.filters):
        handler.addFilter(_LineFilter())
    return logger


class _LineFilter(logging.Filter):
    """Adds the request that a line belongs to, and who sent it, and takes the text from its exception."""

    def filter(self, record: logging.LogRecord) -> bool:
        request_id = REQUEST_ID.get()
        if request_id is not None:
            record.correlation_id = request_id
        credential = CREDENTIAL.get()
        if credential is not None:
            record.credential = credential
        if record.exc_info and record.exc_info[1] is not None:
            record.msg, record.args = f"{record.getMessage()}: {describe(record.exc_info[1])}", ()
            record.exc_info = record.exc_text = None
        return True
