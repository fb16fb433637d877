"""The trace of one streamed hybrid query to ``vectorforge up``, without a key, over a fresh data folder."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.query_trace import ROOT, Trace, Tracer, common

_VECTORFORGE = Path(sys.executable).with_name("vectorforge")
_DOCUMENTS = ("README.md", "SECURITY.md")
_QUERIES = (
    "How are tenants isolated?",
    "What does a deployment cost when it is idle?",
    "Which Python version is needed?",
    "How is a vulnerability reported?",
)


def trace_laptop_query(folder: Path) -> Trace:
    """Return the files and calls of one query; the server is warm and the query is new to its caches.

    Args:
        folder: Empty; holds the server's data. The caller stops the database in ``folder/data/postgres``.
    """
    tracer = Tracer(folder / "trace")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    environment["VECTORFORGE_DATA_DIR"] = str(folder / "data")
    documents = [str(ROOT / name) for name in _DOCUMENTS]
    subprocess.run([_VECTORFORGE, "ingest", *documents], env=environment, check=True, capture_output=True)
    with _serving(environment | tracer.environment) as url:
        _query(url, _QUERIES[0])
        traces: list[Trace] = []
        for query in _QUERIES[1:]:
            with tracer.recording() as recorded:
                _query(url, query)
            traces += recorded
    return common(traces)


def _query(url: str, query: str) -> None:
    body = json.dumps({"query": query, "stream": True}).encode()
    request = urllib.request.Request(f"{url}/v1/rag/query", body, {"content-type": "application/json"})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - our own server
        events = response.read().decode()
    assert "event: token" in events, events
    assert events.rstrip().rsplit("event: ", 1)[1].startswith("done"), events


@contextmanager
def _serving(environment: dict[str, str]) -> Iterator[str]:
    process = subprocess.Popen(
        [_VECTORFORGE, "up", "--port", "0", "--no-sample", "--json"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
