"""What every Lambda function says about itself: JSON logs, CloudWatch metrics, X-Ray spans."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vectorforge.aws.metrics import EmfMetrics
from vectorforge.aws.observability import XRayTracer, structure_logs
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import VectorForgeError, log_unexpected
from vectorforge.telemetry import NoTracer, Tracer

logger = logging.getLogger(__name__)


class FunctionTelemetry:
    """Logs, metrics and spans of one function; made once a process, before its first invocation.

    Args:
        service: Name of the function, e.g. "query".
        config: ``config.aws`` says which measurements become metrics, and whether there are spans.
    """

    def __init__(self, service: str, config: VectorForgeConfig) -> None:
        from aws_lambda_powertools.metrics.provider import cold_start

        self.metrics = EmfMetrics(service, selection=config.aws.cloudwatch_metrics)
        self.tracer: Tracer = XRayTracer(service) if config.aws.tracing else NoTracer()
        self._logger = structure_logs(service)
        self._is_cold = cold_start.is_cold_start  # False with provisioned concurrency

    @contextmanager
    def invocation(self, context: Any) -> Iterator[None]:
        """Around one invocation: its ids on every log line, its metrics printed once at the end.

        A streamed answer has left by then, so nobody waits for the printing.

        Args:
            context: The ``LambdaContext``.

        Raises:
            Exception: One of our own, as it left the block. Any other becomes a general ``VectorForgeError``,
                because Lambda's runtime logs and returns texts, and a driver's may hold anything; its type
                and place are in the log.
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
