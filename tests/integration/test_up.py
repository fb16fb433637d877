"""``vectorforge up`` as a process: documents, access, and recovery."""

import asyncio
import hashlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.vendor_behaviour import Reply
from vectorforge.local.cluster import read_pid_file
from vectorforge.local.postgres import EmbeddedPostgres

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
API_KEY = "vf-key-of-the-test"


def environment(folder: Path, **variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    return {**inherited, "VECTORFORGE_DATA_DIR": str(folder / "data"), **variables}


@pytest.fixture(scope="module")
def folder(private_dir: Callable[[str], Path]) -> Iterator[Path]:
    """Create a working directory; its embedded database is stopped at the end."""
    made = private_dir("up")
    yield made
    EmbeddedPostgres(made / "data" / "postgres").stop(force=True)


@contextmanager
def serving(folder: Path, *arguments: str, **variables: str) -> Iterator[dict[str, Any]]:
    """Run ``vectorforge up --json`` in the background; yield its output once the sample is ready."""
    process = subprocess.Popen(
        [VECTORFORGE, "up", "--port", "0", "--json", *arguments],
        cwd=folder, env=environment(folder, **variables), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    assert process.stdout is not None
    announced = process.stdout.readline()
    watchdog.cancel()
    errors = ""
    try:
        assert announced, process.communicate()[1]
        ready = json.loads(announced)
        if ready["sample_files"]:
            ready |= json.loads(process.stdout.readline())
        yield ready
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    ready["stderr"] = errors
    assert process.returncode == 0, errors


def run(folder: Path, *arguments: str, code: int = 0, **variables: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [VECTORFORGE, *arguments],
        cwd=folder, env=environment(folder, **variables), capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


def fetch(url: str, **headers: str) -> Any:
    request = urllib.request.Request(url, None, headers)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - as above
        return json.load(response)


def status(url: str, **headers: str) -> int:
    try:
        fetch(url, **headers)
    except urllib.error.HTTPError as exc:
        exc.close()
        return exc.code
    return 200


@pytest.mark.slow
def test_sample_documents_are_unchanged_after_restart(
    private_dir: Callable[[str], Path], short_sample: dict[str, str]
) -> None:
    folder = private_dir("own")
    try:
        with serving(folder, **short_sample) as first:
            sources = [d["source"] for d in sample_of(first)]
        assert "vectorforge/README.md" in sources
        assert all(source.startswith("vectorforge/") for source in sources)
        with serving(folder, **short_sample) as second:
            assert [d["version"] for d in sample_of(second)] == [1] * len(sources)
    finally:
        EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)


def test_first_start_prints_url_before_sample_ingestion_with_bars(
    private_dir: Callable[[str], Path], short_sample: dict[str, str]
) -> None:
    folder = private_dir("first")
    ours, theirs = pty.openpty()  # bars are for a terminal
    process = subprocess.Popen(
        [VECTORFORGE, "up", "--port", "0"],
        cwd=folder, env=environment(folder, TERM="xterm-256color", **short_sample), text=True,
        stdout=subprocess.PIPE, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    assert process.stdout is not None
    printed: list[str] = []
    pool = ThreadPoolExecutor(1)
    reading = pool.submit(read_until, ours, "The sample is ready: ")
    try:
        for line in process.stdout:
            printed.append(line)
            if line.startswith("Page and API: "):
                urllib.request.urlopen(line.split()[-1] + "/health", timeout=15).close()  # noqa: S310 - our own server
            if line.startswith("curl "):
                break
        shown = reading.result()
    finally:
        watchdog.cancel()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        pool.shutdown()  # before its terminal is closed
        os.close(ours)
        EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)
    [collection] = [line for line in printed if line.startswith("Collection: ")]
    assert collection.startswith("Collection: default: 0 documents, 0 passages; ingesting")
    for bar in ("Read", "Embedded", "Done"):
        assert re.search(rf"{bar} .*\d+/\d+", shown), shown[-2_000:]


def read_until(terminal: int, end: str) -> str:
    """Return a terminal's output up to some words, or all of it if they never appear."""
    shown = b""
    with suppress(OSError):  # Linux returns EIO when the other side is closed
        while end.encode() not in shown and (piece := os.read(terminal, 65_536)):
            shown += piece
    return shown.decode(errors="replace")


def sample_of(served: dict[str, Any]) -> list[dict[str, Any]]:
    collection = fetch(f"{served['url']}/v1/collections")["collections"][0]
    found = fetch(f"{served['url']}/v1/collections/{collection['id']}/documents?limit=100")
    return list(found["documents"])


def store(served: dict[str, Any], name: str, text: str) -> None:
    """Store a document in the default collection."""
    collection = fetch(f"{served['url']}/v1/collections")["collections"][0]
    body = json.dumps({"documents": [{"source": name, "text": text}]}).encode()
    url = f"{served['url']}/v1/collections/{collection['id']}/documents"
    urllib.request.urlopen(json_request(url, body), timeout=60).close()  # noqa: S310 - our own server
    give_up_at = time.monotonic() + 60
    while not any(d["source"] == name for d in sample_of(served)):
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def json_request(url: str, body: bytes) -> urllib.request.Request:
    return urllib.request.Request(url, body, {"content-type": "application/json"})  # noqa: S310 - our own server


@pytest.mark.parametrize("name", ["README.md", pytest.param("vectorforge/README.md", marks=pytest.mark.slow)])
def test_user_documents_with_sample_names_are_untouched(folder: Path, name: str) -> None:
    """Also with the names of the sample's: another program may choose any source."""
    text = "Mine: the cellar key hangs behind the clock."
    with serving(folder, "--no-sample") as served:
        store(served, name, text)
    with serving(folder) as served:
        mine = next(d for d in sample_of(served) if d["source"] == name)
        assert mine["version"] == 1
        assert fetch(f"{served['url']}/v1/documents/{mine['id']}/text")["text"] == text


def test_configured_api_keys_are_required(folder: Path) -> None:
    keys = json.dumps({hashlib.sha256(API_KEY.encode()).hexdigest(): "acme"})
    with serving(folder, VECTORFORGE_API_KEYS=keys, VECTORFORGE_MAX_TOPK="5") as served:
        assert served["auth"] == "api_key"
        assert status(f"{served['url']}/v1/collections") == 401
        answer = fetch(f"{served['url']}/v1/collections", authorization=f"Bearer {API_KEY}")
        assert answer["collections"] == []  # another tenant's: those of this machine's commands are not in it
    assert (
        "VECTORFORGE_MAX_TOPK is not a setting and is ignored. Did you mean VECTORFORGE_MAX_TOP_K?"
        in served["stderr"]
    )


def test_wildcard_host_requires_keys_or_insecure_flag(folder: Path) -> None:
    refused = run(folder, "up", "--port", "0", "--host", "0.0.0.0", code=2)  # noqa: S104 - refused
    assert "VECTORFORGE_AUTH=api_key" in refused.stderr
    assert "--insecure" in refused.stderr


def test_wildcard_host_serves_local_addresses_only(folder: Path) -> None:
    with serving(folder, "--no-sample", "--insecure", "--host", "0.0.0.0") as served:  # noqa: S104 - on purpose
        port = served["url"].rpartition(":")[2]
        assert "0.0.0.0" not in served["url"]  # noqa: S104 - as above
        addresses = [
            entry.address
            for entries in psutil.net_if_addrs().values()
            for entry in entries
            if entry.family == socket.AF_INET
        ]
        for url in (served["url"], *(f"http://{address}:{port}" for address in addresses)):
            assert status(f"{url}/v1/collections") == 200
        assert status(f"{served['url']}/v1/collections", host="rebound.example") == 421


def postmaster(folder: Path) -> int:
    """Return the pid of the database's server, or 0 if there is none."""
    found = read_pid_file(folder / "data" / "postgres")
    return found.pid if found else 0


def wait_for_answer(url: str, folder: Path, killed: int) -> None:
    """Wait for an answer of another server than the killed one, whose children may still answer briefly."""
    give_up_at = time.monotonic() + 60
    while postmaster(folder) in (0, killed) or status(url) != 200:
        assert time.monotonic() < give_up_at, "no answer since the database was killed"
        time.sleep(0.1)


# Fault 49
def test_killed_database_is_restarted(folder: Path) -> None:
    with serving(folder, "--no-sample") as served:
        url = f"{served['url']}/v1/collections"
        for _ in range(3):
            killed = postmaster(folder)
            os.kill(killed, signal.SIGKILL)
            wait_for_answer(url, folder, killed)
    # A server killed during its first restart is restarted by the same supervisor.
    assert 1 <= served["stderr"].count("PostgreSQL has ended; restarting it") <= 3
    assert not (folder / "data" / "postgres" / "postmaster.pid").exists(), "stopped with the last"


@pytest.mark.slow
def test_command_that_restarted_database_does_not_stop_it(folder: Path) -> None:
    with serving(folder, "--no-sample") as served:
        killed = postmaster(folder)
        os.kill(killed, signal.SIGKILL)
        run(folder, "collections", "list")
        alive = postmaster(folder)
        wait_for_answer(f"{served['url']}/v1/collections", folder, killed)
        run(folder, "collections", "list")
        assert postmaster(folder) == alive


@pytest.mark.slow
async def test_stop_cuts_a_long_stream_without_a_traceback(folder: Path) -> None:
    async with FakeOpenAI() as model:
        model.script(Reply(texts=("The key",), ending="stall"))
        variables = {
            "VECTORFORGE_OPENAI_API_KEY": model.api_key,
            "VECTORFORGE_OPENAI_BASE_URL": model.base_url,
        }
        with ExitStack() as streams, serving(folder, "--no-sample", **variables) as served:
            await asyncio.to_thread(store, served, "mine.md", "Mine: the key hangs behind the clock.")
            body = json.dumps({"query": "Where does the key hang?", "stream": True}).encode()
            request = json_request(f"{served['url']}/v1/rag/query", body)
            opened = await asyncio.to_thread(urllib.request.urlopen, request, timeout=60)
            stream = streams.enter_context(opened)
            read = b""
            while b"event: token" not in read:
                read += (line := await asyncio.to_thread(stream.readline))
                assert line, read
    assert "Traceback" not in served["stderr"]
    assert served["stderr"].count("\n") < 5
