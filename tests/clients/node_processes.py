"""Node processes: one for all scripts of this folder, and programs of their own."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.clients.npm import HERE


class NodeHost:
    """The process of ``host.mjs``, which runs one script at a time. A context manager, which ends it.

    Its pipes are read in threads: each test has an event loop of its own.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, script: str, asked: Any) -> "ScriptRun":
        """Run a script, in a new process if the last script has not ended."""
        if self._process is None:
            pipe, environment = subprocess.PIPE, {"PATH": os.environ["PATH"]}
            self._process = subprocess.Popen(
                ["node", "host.mjs"], cwd=HERE, stdin=pipe, stdout=pipe, env=environment, text=True
            )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"script": script, "asked": asked}) + "\n")
        self._process.stdin.flush()
        return ScriptRun(self)

    async def read(self) -> Any:
        """Return the next line of the process, parsed as JSON."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, "node ended; its error is in the captured stderr"
        return json.loads(line)

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ScriptRun:
    """A running script, whose values are read one by one. A context manager, which ends it."""

    def __init__(self, host: NodeHost) -> None:
        self._host = host
        self._ended = False

    async def read(self) -> Any:
        """Return the next value that the script prints.

        Raises:
            AssertionError: It failed, or ended without one.
        """
        line = await self._host.read()
        self._ended = "value" not in line
        assert not self._ended, line.get("error", "ended without a value")
        return line["value"]

    async def end(self) -> None:
        """Wait for its successful end."""
        line = await self._host.read()
        assert line == {"ended": True}, line.get("error", line)
        self._ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self._host.stop()


class NodeProgram:
    """A program in a process of its own, read line by line. A context manager, which ends it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, *arguments: str, cwd: Path, **environment: str) -> Self:
        """Start ``node`` with these arguments, and only these variables and ``PATH``."""
        pipe, variables = asyncio.subprocess.PIPE, {"PATH": os.environ["PATH"], **environment}
        return cls(
            await asyncio.create_subprocess_exec(
                "node", *arguments, cwd=cwd, stdout=pipe, stderr=pipe, env=variables
            )
        )

    async def read_line(self) -> str:
        """Return the next line of its output.

        Raises:
            AssertionError: It ended without one.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            raise AssertionError((await self._process.stderr.read()).decode())
        return line.decode().rstrip("\n")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()
