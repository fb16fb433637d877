"""Python clients in environments of their own, installed once for all workers, and scripts that use them.

Their versions of the openai package exclude each other's and this project's.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

SCRIPTS = Path(__file__).parent / "python"


def installed_environment(name: str) -> Path:
    """Install the packages of ``python/<name>.txt`` with uv; other workers wait for the first one.

    Returns:
        The folder of its programs.
    """
    requirements = SCRIPTS / f"{name}.txt"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vectorforge-client-tests"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"{name}-{wanted[:12]}-{sys.version_info.minor}"
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "installed").exists():
            uv = os.environ.get("UV", "uv")
            subprocess.run([uv, "venv", "-q", "--clear", "-p", sys.executable, place], check=True)
            python = place / "bin" / "python"
            subprocess.run([uv, "pip", "sync", "-q", "-p", python, requirements], check=True, timeout=600)
            (place / "installed").touch()
    return place / "bin"


class PythonClients:
    """The scripts ``python/<name>.py``, each in one process for all conversations: imports take seconds.

    A context manager, which ends them.
    """

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}

    async def converse(self, name: str, asked: Any) -> Any:
        """Pass a JSON value to a script, and return the one that it prints."""
        async with asyncio.timeout(60):
            return json.loads(await asyncio.to_thread(self._exchange, name, json.dumps(asked)))

    def _exchange(self, name: str, line: str) -> str:
        if name not in self._processes:
            self._processes[name] = _start(name)
        process = self._processes[name]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:  # the traceback is in pytest's captured stderr
            process.wait()
            del self._processes[name]
        assert answer, f"{name} ended without an answer"
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()


def _start(name: str) -> "subprocess.Popen[str]":
    command = [installed_environment(name) / "python", SCRIPTS / f"{name}.py"]
    pipe, environment = subprocess.PIPE, {"PATH": os.environ["PATH"]}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)


async def run_program(name: str, program: str, *arguments: str, **environment: str) -> Any:
    """Run a program of an environment, and return the JSON on its last line of output.

    Args:
        name: Environment.
        program: Name of the program.
        *arguments: Its arguments.
        **environment: Its variables in addition to ``PATH``.
    """
    place = await asyncio.to_thread(installed_environment, name)
    process = await asyncio.create_subprocess_exec(
        place / program,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **environment},
    )
    async with asyncio.timeout(60):
        output, errors = await process.communicate()
    assert process.returncode == 0, (output + errors).decode()
    return json.loads(output.decode().strip().splitlines()[-1])
