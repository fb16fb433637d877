"""Spans as X-Ray subsegments of the running invocation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class XRayTracer:
    """Sends a subsegment to the X-Ray daemon of the Lambda sandbox when a span ends.

    Its parent is the function's own segment, which Lambda writes and names in ``_X_AMZN_TRACE_ID``. Spans are
    attached to that segment one by one and not to a stack of open ones, as the SDK's ``in_subsegment`` does:
    the log of a query may begin while its search is running.

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
        """A subsegment; an ``Exception`` marks it as a fault, with its type and never its text."""
        from aws_xray_sdk.core.models.subsegment import Subsegment

        segment = None if self._disabled else self._recorder.current_segment()
        if segment is None or not segment.sampled:
            yield
            return
        subsegment = Subsegment(name, "local", segment)
        segment.add_subsegment(subsegment)
        try:
            yield
        except Exception as exc:
            subsegment.add_fault_flag()
            subsegment.put_annotation("error_type", type(exc).__name__)
            raise
        finally:
            subsegment.close()
            self._recorder.stream_subsegments()
