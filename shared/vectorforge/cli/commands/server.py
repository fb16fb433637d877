"""The web server of ``vectorforge up``."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import uvicorn

from vectorforge.cli.commands.connections import bounded_connection
from vectorforge.errors import ConfigurationError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from vectorforge.config import ServerSettings


_KEEP_ALIVE_S = 75
"""Longer than clients and load balancers keep an idle connection (aiohttp 15 s, an ALB 60 s), as nginx's:
whoever closes first races with the other's next request, and a question lost in that race is not sent again
by itself."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_started: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        await self._on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise SIGTERM again after serving and so end the process before the database stops.
        yield


def _interrupt(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


@contextlib.contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that what was started is stopped again."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to this address; held from now on, so that nobody else gets it meanwhile.

    Raises:
        ConfigurationError: The port is taken, the host is not one of this machine, or it is not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise ConfigurationError(f"--host {host} is not a name or address of this machine.") from exc
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)  # without it a second process could still bind, thanks to SO_REUSEADDR
    except OSError as exc:
        bound.close()
        raise ConfigurationError(
            f"Port {port} on {host} cannot be opened: {(exc.strerror or 'refused').lower()}. "
            "Choose another with --port."
        ) from exc
    return bound


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, which takes less time for the same work; Python's own on Windows, which has none."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def serve(
    app: "FastAPI",
    bound: socket.socket,
    settings: "ServerSettings",
    *,
    on_started: Callable[[], Awaitable[None]],
) -> None:
    """Serve until SIGINT or SIGTERM; answers that are being written then get five seconds to finish."""
    config = uvicorn.Config(
        app,
        http=bounded_connection(settings.header_timeout_s, settings.max_connections),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=_KEEP_ALIVE_S,
        server_header=False,
        ws="none",
        lifespan="on",
    )
    server = _Server(config, on_started)

    def stop() -> None:
        server.force_exit = server.should_exit  # the second signal does not wait
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await server.serve(sockets=[bound])


LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


def own_names(host: str) -> list[str]:
    """What clients may call a server that listens on ``host``: names and addresses, without port.

    A wildcard stands for every address of every interface.
    """
    if host in LOOPBACK:
        return [host]
    names = [host, socket.gethostname(), socket.getfqdn()]
    return names + _interface_addresses() if host in _WILDCARDS else names


def reachable_url(bound: socket.socket) -> str:
    """An address that a browser can open; for a wildcard the one of the first outward interface."""
    host, port = bound.getsockname()[:2]
    if host in LOOPBACK:
        host = "localhost"
    elif host in _WILDCARDS:
        host = next((name for name in _interface_addresses() if _is_outward(name)), "localhost")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _interface_addresses() -> list[str]:
    """IPv4 before IPv6, in the order of the interfaces; none where psutil is not installed."""
    try:
        import psutil
    except ModuleNotFoundError:  # of the extra "local"
        return []
    found = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    return [
        entry.address.partition("%")[0]  # without the zone of a link-local address
        for family in (socket.AF_INET, socket.AF_INET6)
        for entry in found
        if entry.family == family
    ]


def _is_outward(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return not (parsed.is_loopback or parsed.is_link_local)
