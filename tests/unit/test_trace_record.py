"""The trace of a query: joined to the caller's, recorded, and kept in the queue."""

from contextlib import suppress

import pytest

from tests.unit.traced_logs import PARENT_ID, TRACE_ID, traced_log
from vectorforge.aws.query_log_record import parse_message, record_fields, to_json
from vectorforge.otlp.encoding import encode_trace
from vectorforge.telemetry import TRACE_PARENT, QueryTrace, RecordingTracer


class TestTrace:
    @pytest.mark.parametrize(
        ("header", "joined"),
        [
            (f"00-{TRACE_ID}-{PARENT_ID}-01", True),
            (f"01-{TRACE_ID}-{PARENT_ID}-01-more", True),
            (f"00-{TRACE_ID}-{PARENT_ID}-01-more", False),
            (f"ff-{TRACE_ID}-{PARENT_ID}-01", False),
            (f"00-{'0' * 32}-{PARENT_ID}-01", False),
            (f"00-{TRACE_ID}-{'0' * 16}-01", False),
            (f"00-{TRACE_ID.upper()}-{PARENT_ID}-01", False),
            ("'; DROP TABLE", False),
            (None, False),
        ],
    )
    def test_trace_joins_only_a_valid_traceparent(self, header: str | None, joined: bool) -> None:
        token = TRACE_PARENT.set(header)
        trace = QueryTrace.begin()
        TRACE_PARENT.reset(token)
        assert ((trace.trace_id, trace.parent_id) == (TRACE_ID, PARENT_ID)) is joined
        assert len(bytes.fromhex(trace.trace_id)) == 16

    def test_trace_that_the_caller_does_not_record_has_no_spans(self) -> None:
        token = TRACE_PARENT.set(f"00-{TRACE_ID}-{PARENT_ID}-00")
        trace = QueryTrace.begin()
        TRACE_PARENT.reset(token)
        with RecordingTracer().span("query", trace):
            pass
        assert trace.record() is None

    def test_record_has_open_spans_and_error_types(self) -> None:
        tracer, trace = RecordingTracer(), QueryTrace(TRACE_ID)
        with tracer.span("query", trace):
            with suppress(OSError), tracer.span("retrieve", trace):
                raise OSError("canary")
            record = trace.record()
        assert record is not None
        root, failed = record[2]
        assert root[2] == trace.started_ns <= root[3]
        assert (failed[0], failed[4]) == ("retrieve", "OSError")
        assert "canary" not in str(record)

    def test_trace_survives_the_queue(self) -> None:
        log = traced_log()
        parsed = parse_message(to_json(record_fields("acme", log)))
        assert encode_trace("acme", parsed.query_log(), with_texts=True) == encode_trace(  # type: ignore[union-attr] # a record
            "acme", log, with_texts=True
        )
