"""moto's server as a process, which emulates the AWS services."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from vectorforge.errors import ConfigurationError

ACCOUNT_ID = "000000000000"
REGION = "us-east-1"

_WHILE_WE_LIVE = """\
import os, runpy, signal, sys, threading
def end_with_us():
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end_with_us, daemon=True).start()
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Runs a module until its standard input closes, so that it ends when this process is killed."""
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 10.0


@asynccontextmanager
async def moto(port: int, log: Path) -> AsyncIterator[str]:
    """Run a server of moto on 127.0.0.1 and yield its address. Its state is lost at the end.

    Args:
        port: 0 takes a free one.
        log: File for its output.

    Raises:
        ConfigurationError: moto is not installed, the port is taken, or the start fails.
    """
    advice = "Choose another with --aws-port; an emulator that runs there already is used with "
    port = free_port(port, f"{advice}--endpoint-url http://localhost:{port}.")
    command = [sys.executable, "-c", _WHILE_WE_LIVE, "moto.server", "--host", "127.0.0.1"]
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--port",
            str(port),
            env={**os.environ, "MOTO_ACCOUNT_ID": ACCOUNT_ID},
            stdin=asyncio.subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for us; it is stopped last
        )
    address = f"http://127.0.0.1:{port}"
    try:
        await _ready(process, f"{address}/moto-api/", log)
        yield address
    finally:
        await _stop(process)


def free_port(port: int, advice: str) -> int:
    """Return the port, or a free one for 0.

    Args:
        port: Port of 127.0.0.1.
        advice: Remedy if it is taken; end of the error's text.

    Raises:
        ConfigurationError: The port is taken or privileged.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()  # with SO_REUSEADDR two may bind, but not listen
        except OSError as exc:
            reason = os.strerror(exc.errno or 0).lower()
            raise ConfigurationError(f"Port {port} cannot be opened: {reason}. {advice}") from exc
        free: int = probe.getsockname()[1]
        return free


async def _ready(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            while process.returncode is None:
                if await asyncio.to_thread(answers, url):
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        pass
    raise ConfigurationError(f"The emulator of AWS services failed to start; see {log}.")


def answers(url: str) -> bool:
    """Return whether a local server answers with status 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own address
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
