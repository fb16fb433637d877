"""moto's server, which emulates the AWS services."""

import asyncio
import logging
import os
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from vectorforge.errors import ConfigurationError

ACCOUNT_ID = "000000000000"
REGION = "us-east-1"


@asynccontextmanager
async def moto(port: int, log: Path) -> AsyncIterator[str]:
    """Run moto's server in a thread of this process and yield its address. Its state is lost at the end.

    Args:
        port: Port of 127.0.0.1; 0 takes a free one.
        log: File for its output.

    Raises:
        ConfigurationError: moto is not installed, or the port is taken.
    """
    advice = "Choose another with --aws-port; an emulator that runs there already is used with "
    port = free_port(port, f"{advice}--endpoint-url http://localhost:{port}.")
    os.environ["MOTO_ACCOUNT_ID"] = ACCOUNT_ID
    try:
        from moto.server import ThreadedMotoServer
    except ModuleNotFoundError as exc:
        raise ConfigurationError("Emulating AWS services needs moto: uv sync --group dev") from exc
    requests = logging.getLogger("werkzeug")
    requests.addHandler(logging.FileHandler(log))
    requests.propagate = False
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await asyncio.to_thread(server.stop)


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


def answers(url: str, host: str | None = None, *, timeout_s: float = 5) -> bool:
    """Return whether a local server answers with status 200, to requests for this host."""
    request = urllib.request.Request(url, headers={"Host": host} if host else {})  # noqa: S310 - our own address
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:  # noqa: S310 - our own address
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
