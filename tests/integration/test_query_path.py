"""The way of one streamed hybrid query through the project's files, traced in a running server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.query_trace import Trace
from tests.support.query_trace.laptop import trace_laptop_query
from vectorforge.local.postgres import EmbeddedPostgres

MAX_FILES = 89
MAX_CALLS = 5_000


@pytest.fixture(scope="module")
def folder(private_dir: Callable[[str], Path]) -> Iterator[Path]:
    made = private_dir("trace")
    yield made
    EmbeddedPostgres(made / "data" / "postgres").stop(force=True)


@pytest.fixture(scope="module")
def trace(folder: Path) -> Trace:
    return trace_laptop_query(folder)


def test_query_executes_few_files(trace: Trace) -> None:
    assert len(trace.calls) <= MAX_FILES, "\n".join(trace.files)
    assert trace.total_calls <= MAX_CALLS
