"""Cost of starting: imports, the first answer of a new process, memory."""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from figures.database import fresh_database, sentences
from figures.measuring import Table, cpu_s, progress, resident_mb
from figures.server import answers
from rich.progress import track

from vectorforge.local.postgres import EmbeddedPostgres

_MODULES = ("fastapi", "vectorforge.pipeline.rag", "vectorforge.api.app")
_QUESTIONS = 200
_IMPORT_NOTE = (
    "{} times each, interleaved, including the interpreter's own start. Without bytecode: the very first "
    "import, or any with PYTHONDONTWRITEBYTECODE."
)


def measure_imports(repeats: int) -> list[Table]:
    """Import each module in new interpreters, alternating."""
    runs: dict[str, list[tuple[float, float, int]]] = {module: [] for module in _MODULES}
    table = Table(
        "Import, fresh interpreter",
        ("module", "wall ms min", "wall ms median", "CPU ms min", "without bytecode: CPU ms", "modules"),
        notes=[_IMPORT_NOTE.format(repeats)],
    )
    with with_bytecode() as environment:
        for module in _MODULES:
            fresh_import(module, environment)  # stores it
        uncached = {**environment, "PYTHONDONTWRITEBYTECODE": "1"}
        with tempfile.TemporaryDirectory() as empty:
            uncached["PYTHONPYCACHEPREFIX"] = empty
            first = {module: fresh_import(module, uncached)[1] for module in _MODULES}
        for _ in track(range(repeats), "  importing", console=progress, transient=True):
            for module in _MODULES:
                runs[module].append(fresh_import(module, environment))
        dearest = _dearest_imports(environment)
    for module in _MODULES:
        wall, cpu, loaded = zip(*runs[module], strict=True)
        times = (min(wall), statistics.median(wall), min(cpu), first[module])
        table.add(module, *(value * 1000 for value in times), loaded[0])
    return [table, dearest]


@contextmanager
def with_bytecode() -> Iterator[dict[str, str]]:
    """Yield an environment in which Python stores bytecode, as an installation does."""
    with tempfile.TemporaryDirectory(prefix="vf-pyc-") as folder:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)
        yield {**inherited, "PYTHONPYCACHEPREFIX": folder}


def fresh_import(module: str, environment: dict[str, str]) -> tuple[float, float, int]:
    """Return wall and CPU seconds of a new interpreter that imports a module, and its number of modules."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-c", f"import sys; import {module}; print(len(sys.modules))"]
    output = subprocess.run(command, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, int(output.stdout)


def _dearest_imports(environment: dict[str, str]) -> Table:
    """Return the slowest imports by -X importtime, packages with their own imports."""
    command = [sys.executable, "-X", "importtime", "-c", "import vectorforge.api.app"]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    lines = output.stderr.splitlines()
    own: dict[str, int] = {}
    for line in lines:
        if match := re.match(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", line):
            package = match[2].partition(".")[0]
            own[package] = own.get(package, 0) + int(match[1])
    table = Table(
        "vectorforge.api.app by package (-X importtime, which slows it down)", ("package", "own ms")
    )
    for package, microseconds in sorted(own.items(), key=lambda item: -item[1])[:8]:
        table.add(package, microseconds / 1000)
    return table


def measure_startup(server: EmbeddedPostgres, repeats: int) -> list[Table]:
    """Start ``vectorforge up`` on a running, migrated database; measure its first answer and its memory."""
    table = Table(
        "Starting `vectorforge up` on a running, migrated database",
        ("figure", "median", "unit"),
        notes=["Local embedding model and extractive answers; one document of 20 chunks is stored."],
    )
    with fresh_database(server, "startup") as (app_url, owner_url), with_bytecode() as environment:
        environment["VECTORFORGE_DATABASE_URL"] = app_url
        environment["VECTORFORGE_MIGRATOR_DATABASE_URL"] = owner_url
        _serve_once(environment, ask=1)  # creates collection and document; builds the model if missing
        runs = [
            _serve_once(environment, ask=_QUESTIONS if n == 0 else 1)
            for n in track(range(repeats), "  starting", console=progress, transient=True)
        ]
    for name in runs[0]:
        values = [run[name] for run in runs if name in run]
        table.add(name, statistics.median(values), "MB" if "memory" in name else "s")
    return [table]


def _serve_once(environment: dict[str, str], *, ask: int) -> dict[str, float]:
    command = [sys.executable, "-m", "vectorforge.cli", "up", "--port", "0", "--no-sample", "--json"]
    started = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout
            text = b""
            while not text.rstrip().endswith(b"}"):
                line = child.stdout.readline()
                if not line:
                    raise RuntimeError("`vectorforge up` did not start.")
                text += line
            url = json.loads(text)["url"]
            while not answers(f"{url}/health"):
                time.sleep(0.005)
            found = {"start to /health response": time.perf_counter() - started}
            found["CPU until then"] = cpu_s(child.pid)
            found["memory after start"] = resident_mb(child.pid)
            _add_document(url)
            query_started = time.perf_counter()
            _ask(url, 0)
            found["first query (loads the embedding model)"] = time.perf_counter() - query_started
            found["memory after the first query"] = resident_mb(child.pid)
            if ask > 1:
                for number in range(1, ask):
                    _ask(url, number)
                found[f"memory after {ask} queries"] = resident_mb(child.pid)
            return found
        finally:
            child.terminate()
            child.wait(30)


def _add_document(url: str) -> None:
    collections = _call(f"{url}/v1/collections")["collections"]
    collection = next(c for c in collections if c["name"] == "default")
    if collection["document_count"]:
        return
    text = sentences(1, 14_000)
    body = {"documents": [{"source": "one.md", "text": text, "media_type": "text/markdown"}]}
    job = _call(f"{url}/v1/collections/{collection['id']}/documents", body)
    while _call(f"{url}/v1/jobs/{job['id']}")["status"] in ("queued", "running"):
        time.sleep(0.1)


def _ask(url: str, number: int) -> None:
    answer = _call(f"{url}/v1/rag/query", {"query": sentences(2_000_001 + 400 * number, 60)})
    if not answer["context"]:
        raise RuntimeError("The question found nothing.")


def _call(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - our own server's URL
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - the same
        return json.loads(response.read())
