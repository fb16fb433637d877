"""Contestants in separate processes, driven by commands or over HTTP."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from peers import job
from peers.roster import Entry

FOLDER = Path(__file__).resolve().parents[1]
"""Import path of ``peers``."""
_START_TIMEOUT_S = 120


class ContestantError(Exception):
    """A contestant did not start, or did not do the job; the text names its log."""


@dataclass(slots=True)
class Asked:
    """Cost of a number of queries."""

    latency_s: list[float] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """CPU seconds of the contestant's process only."""
    sources: float | None = None
    """Average number of chunks per answer."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, ended threads included, in nanosecond resolution.

    The clock's number is computed as by clock_getcpuclockid(3):
    https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/linux/posix-timers_types.h.
    """
    return time.clock_gettime((~pid << 3) | 2)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without settings of the service, plus these variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    quiet = {
        "HAYSTACK_TELEMETRY_ENABLED": "false",
        "LANGSMITH_TRACING": "false",
        "ANONYMIZED_TELEMETRY": "false",
    }
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)  # installed programs have their bytecode
    return {**inherited, **quiet, "PYTHONPATH": str(FOLDER), **variables}


class WorkerProcess:
    """A contestant's module; see ``peers.worker``."""

    def __init__(self, entry: Entry, python: Path, variables: Mapping[str, str], logs: Path) -> None:
        self.entry = entry
        self._log = logs / f"{entry.name}.module.log"
        self.spawned = time.perf_counter()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", "peers.worker", entry.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=FOLDER,
                env=environment(variables),
            )
        try:
            self.hello = self._result()
        except ContestantError:
            self.close()
            raise

    def run(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Run a command of ``peers.worker``.

        Raises:
            ContestantError: The command failed.
        """
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._result()

    def ask(self, *, first: int, count: int, in_flight: int, stream: bool, category: str = "half") -> Asked:
        """Send that many queries from this number on."""
        arguments = {"first": first, "count": count, "in_flight": in_flight, "category": category}
        return Asked(**self.run("ask", **arguments, stream=stream))

    def resident_mb(self) -> float:
        """Return its memory in MB (10^6 bytes)."""
        return float(self.run("memory")["resident_mb"])

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _result(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        result: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in result:
            raise ContestantError(f"{self.entry.title}: {result['error']}; see {self._log}")
        return result


class ServerProcess:
    """A contestant's server."""

    def __init__(self, entry: Entry, python: Path, variables: Mapping[str, str], logs: Path) -> None:
        self.entry = entry
        self._log = logs / f"{entry.name}.server.log"
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.spawned = time.perf_counter()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                entry.door.command(python, entry.module, port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=FOLDER,
                env=environment(variables),
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def wait_until_ready(self, session: aiohttp.ClientSession) -> float:
        """Wait for its first response to a health check; return the seconds since the start of the process.

        Raises:
            ContestantError: It exited, or took too long.
        """
        while time.perf_counter() - self.spawned < _START_TIMEOUT_S:
            try:
                async with session.get(self.url + self.entry.door.health) as response:
                    if response.status == 200:
                        return time.perf_counter() - self.spawned
            except aiohttp.ClientConnectionError:
                pass
            if self._process.poll() is not None:
                break
            await asyncio.sleep(0.005)
        raise ContestantError(f"{self.entry.title} did not start; see {self._log}")

    async def ask(
        self,
        session: aiohttp.ClientSession,
        *,
        first: int,
        count: int,
        in_flight: int,
        stream: bool,
        category: str = "half",
    ) -> Asked:
        """Send that many queries from this number on.

        Raises:
            ContestantError: An answer is not the model's.
        """
        asked, numbers, sources = Asked(), iter(range(first, first + count)), list[int]()

        async def client() -> None:
            for number in numbers:
                await self._ask_one(session, number, category, asked, sources, stream=stream)

        cpu, begun = cpu_s(self.pid), time.perf_counter()
        await asyncio.gather(*(client() for _ in range(in_flight)))
        asked.wall_s = time.perf_counter() - begun
        asked.cpu_s = cpu_s(self.pid) - cpu
        asked.sources = sum(sources) / len(sources) if sources else None
        return asked

    async def _ask_one(
        self,
        session: aiohttp.ClientSession,
        number: int,
        category: str,
        asked: Asked,
        sources: list[int],
        *,
        stream: bool,
    ) -> None:
        path, body = self.entry.door.request(job.question(number), category, stream=stream)
        received = bytearray()
        mark = job.TOKEN_MARK.encode()
        begun, first_token = time.perf_counter(), 0.0
        async with session.post(self.url + path, json=body) as response:
            async for block in response.content.iter_any():
                received += block
                if not first_token and mark in received:
                    first_token = time.perf_counter()
        asked.latency_s.append(time.perf_counter() - begun)
        if response.status != 200 or received.count(mark) < job.ANSWER_TOKENS:
            text = bytes(received[:200])
            raise ContestantError(f"{self.entry.title}: status {response.status}, {text!r}; see {self._log}")
        if stream:
            asked.first_token_s.append(first_token - begun)
        else:
            sources.append(self.entry.door.sources(bytes(received)))

    def resident_mb(self) -> float:
        """Return its memory in MB (10^6 bytes)."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self) -> None:
        """End the process."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
