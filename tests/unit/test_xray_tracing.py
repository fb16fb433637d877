"""Spans sent to an X-Ray daemon, each case in a separate interpreter, since the SDK is global."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws.xray_daemon import XRayDaemon
from vectorforge.telemetry import SPAN_NAMES

ROOT = Path(__file__).parents[2]
TRACE_ID, SEGMENT_ID = "1-6920f0a1-3f5c7d9e1b2a4c6d8e0f1a2b", "53995c3f42cd8ad8"
SAMPLED = f"Root={TRACE_ID};Parent={SEGMENT_ID};Sampled=1"
BEGINNING = """
import os, sys
from vectorforge.aws.tracing import XRayTracer
from vectorforge.telemetry import QueryTrace, SPAN_NAMES
tracer, trace = XRayTracer("query"), QueryTrace("0" * 32)
"""


@pytest.fixture
def daemon() -> Iterator[XRayDaemon]:
    with XRayDaemon() as listening:
        yield listening


def run(daemon: XRayDaemon, code: str, **environment: str) -> list[dict[str, Any]]:
    """Return the documents that this code sends."""
    subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGINNING + code],
        env={
            "PYTHONPATH": str(ROOT / "shared"),
            "AWS_XRAY_DAEMON_ADDRESS": daemon.address,
            "LAMBDA_TASK_ROOT": "/var/task",
            "_X_AMZN_TRACE_ID": SAMPLED,
            **environment,
        },
        check=True,
    )
    return daemon.received()


def test_span_is_a_subsegment_of_the_invocation(daemon: XRayDaemon) -> None:
    (document,) = run(daemon, "with tracer.span('retrieve', trace): pass")
    assert document["name"] == "retrieve"
    assert document["type"] == "subsegment"
    assert (document["trace_id"], document["parent_id"]) == (TRACE_ID, SEGMENT_ID)
    assert document["start_time"] <= document["end_time"]
    assert not document["in_progress"]
    assert "fault" not in document


def test_failed_span_reports_error_type_without_message(daemon: XRayDaemon) -> None:
    (document,) = run(
        daemon,
        """
try:
    with tracer.span("retrieve", trace):
        raise OSError("postgresql://user:canary@host")
except OSError:
    pass
""",
    )
    assert document["fault"] is True
    assert document["annotations"] == {"error_type": "OSError"}
    assert "canary" not in str(document)


def test_every_span_name_becomes_a_subsegment_and_query_starts_with_its_trace(daemon: XRayDaemon) -> None:
    documents = run(
        daemon,
        """
trace.started_ns = 1_000_000_000
for name in SPAN_NAMES:
    with tracer.span(name, trace): pass
""",
    )
    assert [document["name"] for document in documents] == list(SPAN_NAMES)
    assert [document["start_time"] == 1.0 for document in documents] == [True, *[False] * 5]


def test_overlapping_spans_are_siblings(daemon: XRayDaemon) -> None:
    documents = run(
        daemon,
        """
import asyncio

async def answer():
    with tracer.span("generate", trace):
        yield 1
        yield 2

async def main():
    first, second = answer(), answer()
    await anext(first)
    async with asyncio.TaskGroup() as group:
        group.create_task(step("retrieve"))
        group.create_task(step("log"))
        await anext(second)
        await first.aclose()  # before what began after it
    await second.aclose()

async def step(name):
    with tracer.span(name, trace):
        await asyncio.sleep(0.01)

asyncio.run(main())
""",
    )
    assert sorted(d["name"] for d in documents) == ["generate", "generate", "log", "retrieve"]
    assert {(d["trace_id"], d["parent_id"]) for d in documents} == {(TRACE_ID, SEGMENT_ID)}
    assert len({d["id"] for d in documents}) == 4
    assert not any("subsegments" in d or "fault" in d for d in documents)


def test_next_invocation_has_own_trace(daemon: XRayDaemon) -> None:
    documents = run(
        daemon,
        """
with tracer.span("log", trace): pass
os.environ["_X_AMZN_TRACE_ID"] = "Root=1-6920f0a2-000000000000000000000001;Parent=1111111111111111;Sampled=1"
with tracer.span("log", trace): pass
os.environ["_X_AMZN_TRACE_ID"] = "Root=1-6920f0a2-000000000000000000000001;Parent=2222222222222222;Sampled=1"
with tracer.span("log", trace): pass
""",
    )
    other = "1-6920f0a2-000000000000000000000001"
    assert [(d["trace_id"], d["parent_id"]) for d in documents] == [
        (TRACE_ID, SEGMENT_ID),
        (other, "1111111111111111"),
        (other, "2222222222222222"),
    ]


@pytest.mark.parametrize(
    "environment",
    [
        {"_X_AMZN_TRACE_ID": f"Root={TRACE_ID};Parent={SEGMENT_ID};Sampled=0"},
        {"_X_AMZN_TRACE_ID": ""},
        {"LAMBDA_TASK_ROOT": ""},
        {"POWERTOOLS_TRACE_DISABLED": "true"},
    ],
    ids=["not sampled", "no trace", "not on Lambda", "switched off"],
)
def test_untraced_invocation_sends_nothing(daemon: XRayDaemon, environment: dict[str, str]) -> None:
    assert run(daemon, "with tracer.span('retrieve', trace): pass", **environment) == []


def test_tracing_imports_no_client_library(daemon: XRayDaemon) -> None:
    assert (
        run(daemon, "assert not {'requests', 'httpx', 'psycopg', 'botocore.client'} & set(sys.modules)") == []
    )


def test_cancelled_span_is_annotated_without_fault(daemon: XRayDaemon) -> None:
    documents = run(
        daemon,
        """
import asyncio

def closed():
    with tracer.span("closed", trace):
        yield

generator = closed()
next(generator)
generator.close()
try:
    with tracer.span("cancelled", trace):
        raise asyncio.CancelledError
except asyncio.CancelledError:
    pass
""",
    )
    assert [document["annotations"] for document in documents] == [{"outcome": "cancelled"}] * 2
    assert all("fault" not in document for document in documents)
