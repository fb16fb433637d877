"""Path of one streamed hybrid query through the project's files, traced in a running server."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.query_trace import ROOT, Trace
from tests.support.query_trace.laptop import trace_laptop_query
from vectorforge.local.postgres import EmbeddedPostgres

MAX_FILES = 61
MAX_CALLS = 5_000
PAGE = ROOT / "docs" / "how-it-works.md"


@pytest.fixture(scope="module")
def folder(private_dir: Callable[[str], Path]) -> Iterator[Path]:
    made = private_dir("trace")
    yield made
    EmbeddedPostgres(made / "data" / "postgres").stop(force=True)


@pytest.fixture(scope="module")
def trace(folder: Path) -> Trace:
    return trace_laptop_query(folder)


def described_files() -> list[str]:
    """Return the files named in the page's section on a query."""
    section = PAGE.read_text(encoding="utf-8").split("## The path of a query")[1].split("\n## ")[0]
    section = section[section.index("\n1. ") :]
    return [f"shared/vectorforge/{path}" for path in re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", section)]


def test_query_executes_few_files(trace: Trace) -> None:
    assert len(trace.calls) <= MAX_FILES, "\n".join(trace.files)
    assert trace.total_calls <= MAX_CALLS


def test_described_path_is_the_path_executed(trace: Trace) -> None:
    described = described_files()
    assert len(described) >= 15
    assert [file for file in described if file not in trace.calls] == []
