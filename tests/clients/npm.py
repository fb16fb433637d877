"""npm packages, installed once for all workers, and Node scripts that use them."""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Self

HERE = Path(__file__).parent
_MODULES = HERE / "node_modules"


def installed_modules() -> Path:
    """Install the packages of package-lock.json with ``npm ci``; other workers wait for the first one.

    Returns:
        The folder ``node_modules``.
    """
    npm = shutil.which("npm")
    assert npm is not None, "Node.js 20 or newer is missing: https://nodejs.org/en/download"
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = _MODULES / ".installed-lock"
    with (HERE / ".install-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            # esbuild is the only package with an install script, and works without it.
            options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
            subprocess.run([npm, "ci", *options], cwd=HERE, check=True, timeout=600)
            stamp.write_text(wanted)
    return _MODULES


class NodeScript:
    """A running script, whose output is read line by line. A context manager, which ends it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, *arguments: str, cwd: Path = HERE, **environment: str) -> Self:
        """Start ``node`` with these arguments, and only these variables and ``PATH``."""
        process = await asyncio.create_subprocess_exec(
            "node",
            *arguments,
            cwd=cwd,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **environment},
            limit=1024 * 1024,
        )
        return cls(process)

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

    async def read(self) -> Any:
        """Return the next line, parsed as JSON."""
        return json.loads(await self.read_line())

    async def end(self) -> None:
        """Wait for its successful end."""
        output, errors = await self._process.communicate()
        assert self._process.returncode == 0, (output + errors).decode()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()
