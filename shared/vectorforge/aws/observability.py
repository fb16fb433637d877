"""The library's log lines as JSON, as CloudWatch Logs Insights reads them.

Spans as X-Ray subsegments of the running invocation.

Calls of botocore whose log lines would hold secrets, at DEBUG.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from vectorforge.errors import describe_exception
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
            record.msg, record.args = f"{record.getMessage()}: {describe_exception(record.exc_info[1])}", ()
            record.exc_info = record.exc_text = None
        return True


class XRayTracer:
    """Sends a subsegment to the X-Ray daemon of the Lambda sandbox when a span ends.

    Its parent is the function's own segment, which Lambda writes and names in ``_X_AMZN_TRACE_ID``. The stack
    of open subsegments that Powertools' and the SDK's context managers keep is not used: the log of a query
    may begin while its search is running, and the stack outlives an invocation of the same trace.

    Invocations that X-Ray does not sample, and processes outside Lambda, cost a look at the environment.

    Args:
        service: Name of the service in Powertools' settings.
    """

    def __init__(self, service: str) -> None:
        from aws_lambda_powertools import Tracer  # imports the X-Ray SDK

        # auto_patch would import every client library it knows, to patch it: 0.6 s.
        tracer = Tracer(service=service, auto_patch=False)
        self._disabled = tracer.disabled
        self._recorder: Any = tracer.provider

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """A subsegment; an ``Exception`` marks it as a fault, with its type and never its text.

        One that was cancelled, or whose generator was closed, is no fault: it gets ``outcome`` "cancelled".
        """
        subsegment = self._begin(name)
        if subsegment is None:
            yield
            return
        try:
            yield
        except Exception as exc:
            subsegment.add_fault_flag()
            subsegment.put_annotation("error_type", type(exc).__name__)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            subsegment.put_annotation("outcome", "cancelled")
            raise
        finally:
            subsegment.close()
            self._recorder.emitter.send_entity(subsegment)

    def _begin(self, name: str) -> Any | None:
        """A subsegment of the running invocation; None when that is not traced."""
        from aws_xray_sdk.core.models.facade_segment import FacadeSegment
        from aws_xray_sdk.core.models.subsegment import Subsegment
        from aws_xray_sdk.core.models.trace_header import TraceHeader

        # Lambda's runtime sets it anew for each invocation.
        header = TraceHeader.from_header_str(os.environ.get("_X_AMZN_TRACE_ID"))
        if self._disabled or header.sampled != 1 or not header.root or not header.parent:
            return None
        segment = FacadeSegment("facade", traceid=header.root, entityid=header.parent, sampled=True)
        subsegment = Subsegment(name, "local", segment)
        segment.add_subsegment(subsegment)
        return subsegment


_silent: ContextVar[bool] = ContextVar("a call whose log lines hold secrets", default=False)


@contextmanager
def unlogged(*loggers: str) -> Iterator[None]:
    """Drop what these loggers say in here, at every level; other threads and tasks keep their lines.

    Args:
        loggers: Names, such as "botocore.parsers".
    """
    for name in loggers:
        logging.getLogger(name).addFilter(_passes)  # adding it again does nothing
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def _passes(record: logging.LogRecord) -> bool:
    return not _silent.get()
