"""Query logs with a trace."""

from tests.support.rag.query_logs import make_log
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.telemetry import SPAN_NAMES, QueryTrace, RecordingTracer

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT_ID = "b7ad6b7169203331"


def traced_log(**changes: object) -> QueryLog:
    tracer, trace = RecordingTracer(), QueryTrace(TRACE_ID, PARENT_ID)
    with tracer.span("query", trace):
        for name in SPAN_NAMES[1:]:
            with tracer.span(name, trace):
                pass
        return make_log(trace=trace.record(), **changes)
