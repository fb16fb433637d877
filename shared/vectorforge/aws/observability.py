"""Telemetry of a Lambda function: JSON log lines, X-Ray subsegments, and both with metrics per invocation."""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from vectorforge.aws.metrics import EmfMetrics
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import VectorForgeError, describe_exception, log_unexpected
from vectorforge.telemetry import CREDENTIAL, REQUEST_ID, NoTracer, Tracer

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

_LIBRARY = "vectorforge"


def structure_logs(service: str) -> "Logger":
    """Print log records of ``vectorforge`` as JSON, one object per line, on standard output.

    Each line has timestamp, level, logger (``name``), message, ``service``, X-Ray trace id and, during a
    request, ``correlation_id`` (its ``X-Request-Id``) and ``credential`` (name of the key or identity, never
    the key). Exceptions are shown by type and location, since their texts may hold keys, URLs or rows. The
    level is INFO, or that of ``POWERTOOLS_LOG_LEVEL`` or the function. Other libraries log through the
    handler of Lambda's runtime on the root logger.

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
    """Filter that adds request and credential to a record and removes the text of its exception."""

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
    """Tracer that sends a subsegment to the X-Ray daemon of the Lambda sandbox when a span ends.

    The parent is the function's own segment, named in ``_X_AMZN_TRACE_ID``. The stack of open subsegments of
    Powertools and the SDK is not used: the log of a query may start while its search runs, and the stack
    outlives an invocation of the same trace. Unsampled invocations and processes outside Lambda only read the
    environment.

    Args:
        service: Name of the service in Powertools' settings.
    """

    def __init__(self, service: str) -> None:
        from aws_lambda_powertools import Tracer  # imports the X-Ray SDK

        # auto_patch would import every supported client library: 0.6 s.
        tracer = Tracer(service=service, auto_patch=False)
        self._disabled = tracer.disabled
        self._recorder: Any = tracer.provider

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """A subsegment; an ``Exception`` marks it as a fault, with its type and never its text.

        One that was canceled, or whose generator was closed, is no fault: it gets ``outcome`` "canceled".
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

        # Lambda's runtime sets it for each invocation.
        header = TraceHeader.from_header_str(os.environ.get("_X_AMZN_TRACE_ID"))
        if self._disabled or header.sampled != 1 or not header.root or not header.parent:
            return None
        segment = FacadeSegment("facade", traceid=header.root, entityid=header.parent, sampled=True)
        subsegment = Subsegment(name, "local", segment)
        segment.add_subsegment(subsegment)
        return subsegment


_silent: ContextVar[bool] = ContextVar("a call whose log lines hold secrets", default=False)


@contextmanager
def suppress_logs(*loggers: str) -> Iterator[None]:
    """Suppress these loggers within the block, at every level; other threads and tasks are not affected.

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


logger = logging.getLogger(__name__)


class FunctionTelemetry:
    """Logs, metrics and spans of one function; created once per process, before its first invocation.

    Args:
        service: Name of the function, e.g. "query".
        config: ``config.aws`` selects the metrics and enables spans.
    """

    def __init__(self, service: str, config: VectorForgeConfig) -> None:
        from aws_lambda_powertools.metrics.provider import cold_start

        self.metrics = EmfMetrics(service, selection=config.aws.cloudwatch_metrics)
        self.tracer: Tracer = XRayTracer(service) if config.aws.tracing else NoTracer()
        self._logger = structure_logs(service)
        self._is_cold = cold_start.is_cold_start  # False with provisioned concurrency

    @contextmanager
    def invocation(self, context: Any) -> Iterator[None]:
        """Wrap one invocation: its ids on every log line, its metrics printed once at the end.

        A streamed answer has been sent by then.

        Args:
            context: The ``LambdaContext``.

        Raises:
            Exception: Our own errors unchanged. Any other becomes a general ``VectorForgeError``, because
                Lambda's runtime logs and returns texts, which may hold secrets; its type and location are
                logged.
        """
        is_cold, self._is_cold = self._is_cold, False
        self._logger.append_keys(function_request_id=context.aws_request_id, cold_start=is_cold)
        try:
            yield
        except Exception as exc:
            log_unexpected(logger, "The invocation failed", exc)
            if type(exc).__module__.startswith("vectorforge."):
                raise
            raise VectorForgeError(f"The invocation failed with {type(exc).__name__}; see the log.") from None
        finally:
            if is_cold:
                self.metrics.add_cold_start(context)
            self.metrics.flush()
