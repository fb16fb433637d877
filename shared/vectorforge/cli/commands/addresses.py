"""Network addresses of this machine, and the socket that the server listens on."""

import ipaddress
import socket

from vectorforge.errors import ConfigurationError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


def own_names(host: str) -> list[str]:
    """Return the names and addresses of a server that listens on ``host``, without port.

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


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket to this address, and reserve it until the server starts.

    Raises:
        ConfigurationError: The port is in use, the host is not of this machine, or binding is not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise ConfigurationError(f"--host {host} is not a name or address of this machine.") from exc
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)  # otherwise a second process could bind, too, because of SO_REUSEADDR
    except OSError as exc:
        bound.close()
        raise ConfigurationError(
            f"Port {port} on {host} cannot be opened: {(exc.strerror or 'refused').lower()}. "
            "Choose another with --port."
        ) from exc
    return bound
