"""Spans as X-Ray subsegments."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vectorforge.telemetry import QueryTrace, SpanName


class XRayTracer:
    """Tracer that sends a subsegment to the X-Ray daemon of the Lambda sandbox when a span ends.

    The parent is the function's own segment, named in ``_X_AMZN_TRACE_ID``. The stack of open subsegments of
    Powertools and the SDK is not used: the log of a query may start while its search runs, and the stack
    outlives an invocation of the same trace. Unsampled invocations and processes outside Lambda only read the
    environment.
    """

    def __init__(self, service: str) -> None:
        from aws_lambda_powertools import Tracer  # imports the X-Ray SDK

        # auto_patch would import every supported client library: 0.6 s.
        tracer = Tracer(service=service, auto_patch=False)
        self._disabled = tracer.disabled
        self._recorder: Any = tracer.provider

    @contextmanager
    def span(self, name: SpanName, trace: QueryTrace) -> Iterator[None]:
        """A subsegment; an ``Exception`` marks it as a fault, with its type and never its text.

        One that was canceled, or whose generator was closed, is no fault: it gets ``outcome`` "canceled".
        """
        subsegment = self._begin(name, trace)
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

    def _begin(self, name: SpanName, trace: QueryTrace) -> Any | None:
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
        subsegment.start_time = trace.start_ns(name) / 1e9
        segment.add_subsegment(subsegment)
        return subsegment
