"""A function under AWS's own Runtime Interface Emulator, with its bundle only."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp

_INVOKE = "/2015-03-31/functions/function/invocations"
_PATIENCE_S = 60

# Rejects and records the process's connections to other machines.
_WATCHED_RUNTIME = """\
import ipaddress, runpy, sys

def is_outside(host):
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host not in ("localhost", "", None)

def watch(name, args):
    host = None
    if name == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0]
    elif name == "socket.getaddrinfo":
        host = args[0]
    if host is not None and is_outside(host.decode() if isinstance(host, bytes) else host):
        with open(record, "a") as file:
            file.write(f"{name} {host}\\n")
        raise OSError("This is outside.")

record = sys.argv.pop(1)
sys.addaudithook(watch)
runpy.run_module("vectorforge.runtime", run_name="__main__", alter_sys=True)
"""


class EmulatedFunction:
    """Use as an async context manager, which ends every process it started.

    Args:
        emulator: The emulator's program.
        bundle: Folder of the function's bundle; the process sees no other package.
        function: Name of the function, as in ``functions/``.
        environment: Environment of the process.
        record: File with a line for each connection attempt to another machine.
        wrapped: Start like the managed runtime with AWS_LAMBDA_EXEC_WRAPPER, without recording.
    """

    def __init__(
        self,
        emulator: Path,
        bundle: Path,
        function: str,
        environment: Mapping[str, str],
        record: Path,
        *,
        wrapped: bool = False,
    ) -> None:
        self._bundle = bundle
        self._record = record
        self._environment = {
            "AWS_LAMBDA_FUNCTION_NAME": function,
            "AWS_LAMBDA_FUNCTION_TIMEOUT": "60",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
            "LAMBDA_TASK_ROOT": str(bundle),
            "AWS_XRAY_SDK_ENABLED": "false",
            **environment,
        }
        port, runtime_port = _free_port(), _free_port()
        self._url = f"http://127.0.0.1:{port}{_INVOKE}"
        self._command = [str(emulator), "--log-level", "error"]
        self._command += ["--runtime-interface-emulator-address", f"127.0.0.1:{port}"]
        self._command += ["--runtime-api-address", f"127.0.0.1:{runtime_port}"]
        self._command += self._managed() if wrapped else self._watched()
        self._command += [f"functions.{function}.handler.handler"]
        self._process: asyncio.subprocess.Process | None = None
        self._output = b""

    def _watched(self) -> list[str]:
        return [sys.executable, "-S", "-P", "-B", "-c", _WATCHED_RUNTIME, str(self._record)]

    def _managed(self) -> list[str]:
        """Return the command of /var/runtime/bootstrap: the wrapper with an interpreter and AWS's program."""
        python = self._record.with_name("python3")
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -P -B "$@"\n')
        python.chmod(0o755)
        wrapper = self._bundle / "vectorforge" / "runtime" / "exec_wrapper"
        service = self._record.with_name("bootstrap")  # names the handler in _HANDLER only, as on Lambda
        service.write_text(f"#!/bin/sh\nexec {wrapper} {python} /var/runtime/bootstrap.py\n")
        service.chmod(0o755)
        return [str(service)]

    @property
    def outside(self) -> list[str]:
        """Return the connection attempts to other machines."""
        return self._record.read_text().splitlines() if self._record.exists() else []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            cwd=self._bundle,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def invoke(self, event: Any) -> bytes:
        """Return the unchanged response of Invoke."""
        timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            for _ in range(_PATIENCE_S * 10):
                try:
                    async with http.post(self._url, data=json.dumps(event)) as response:
                        assert response.status == 200, self._output.decode()
                        return await response.read()
                except aiohttp.ClientConnectorError:  # not listening yet
                    await asyncio.sleep(0.1)
        raise AssertionError(f"The emulator does not listen:\n{self._output.decode()}")

    async def answer(self, event: Any) -> Any:
        """Return the response as JSON; a function error fails the test."""
        answer = json.loads(await self.invoke(event))
        assert not (isinstance(answer, dict) and "errorType" in answer), (answer, self._output.decode())
        return answer

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._output += line


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
