"""``vectorforge up`` as a user runs it, next to other commands."""

import json
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import VECTORFORGE, CommandLine
from vectorforge.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def vectorforge(private_dir: Callable[[str], Path]) -> Iterator[CommandLine]:
    """Run commands that start and stop the embedded server themselves."""
    folder = private_dir("up")
    yield CommandLine(folder, folder / "data")
    EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)


@pytest.fixture(scope="module")
def served(vectorforge: CommandLine, short_sample: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Run ``vectorforge up --json`` in the background; return its output once the sample is ready."""
    process = subprocess.Popen(
        [VECTORFORGE, "up", "--port", "0", "--json"],
        cwd=vectorforge.folder, env=vectorforge.environment | short_sample, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    assert process.stdout is not None
    announced = process.stdout.readline()
    watchdog.cancel()
    try:
        assert announced, process.communicate()[1]
        yield json.loads(announced) | json.loads(process.stdout.readline())
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert errors == ""


def fetch(url: str, body: Any = None, **headers: str) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
        return json.load(response)


def test_up_answers_from_the_sample_with_citations(served: dict[str, Any]) -> None:  # F-007
    assert served["sample"]["succeeded"] >= 1
    assert served["provider"] == "extractive"
    answer = fetch(f"{served['url']}/v1/rag/query", {"query": "What is VectorForge?"})
    assert answer["response"]
    assert answer["extractive"] is True
    assert answer["citations"]
    assert answer["context"][0]["source"]


def test_up_rejects_other_host_names(served: dict[str, Any]) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch(f"{served['url']}/v1/collections", host="rebound.example")
    assert refused.value.code == 421
    refused.value.close()


def test_up_shares_its_database_with_other_commands(served: dict[str, Any], vectorforge: CommandLine) -> None:
    vectorforge.process("collections", "create", "shared")
    collections = fetch(f"{served['url']}/v1/collections")["collections"]
    assert "shared" in [collection["name"] for collection in collections]
    assert vectorforge.json("collections", "list") == {"collections": collections}
    page = vectorforge.json("collections", "list", "--limit", "1", "--offset", "1")
    assert page == {"collections": collections[1:2]}
    assert "no more than 1000" in vectorforge("collections", "list", "--offset", "1000").stderr


def test_up_on_taken_port_names_the_port(served: dict[str, Any], vectorforge: CommandLine) -> None:
    port = served["url"].rpartition(":")[2]
    assert f"Port {port}" in vectorforge("up", "--port", port, code=2).stderr
