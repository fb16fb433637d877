"""Options that several commands share.

Asking before something is lost, or costs.

Under which names and addresses this machine is reached.
"""

import ipaddress
import socket
import sys
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from vectorforge.errors import InvalidInputError
from vectorforge.types import SearchMode

LimitOption: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Most entries of the list.", show_default="all of them")
]
OffsetOption: TypeAlias = Annotated[int, typer.Option(min=0, help="Entries to skip before the first one.")]
JsonOption: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document for programs.", rich_help_panel="Everywhere")
]
DebugOption: TypeAlias = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel="Everywhere")
]
DataDirOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="VECTORFORGE_DATA_DIR",
        help="Where the embedded database lives. Unused when VECTORFORGE_DATABASE_URL is set. "
        "Default: vectorforge in your data folder.",
        rich_help_panel="Everywhere",
        show_default=False,
    ),
]
CollectionOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--collection", "-c", help="Name or id of the collection.", show_default="default", metavar="NAME"
    ),
]
ProfileOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--profile", min=0, help="Only this profile.", metavar="NUMBER", show_default=False),
]
FilterOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--filter",
        help='Metadata filter as JSON, e.g. [cyan]\'{"lang": "en"}\'[/cyan].',
        metavar="JSON",
        show_default=False,
    ),
]
TopKOption: TypeAlias = Annotated[
    int, typer.Option("--top-k", "-k", min=1, help="Passages to retrieve at most.")
]
ModeOption: TypeAlias = Annotated[
    SearchMode | None,
    typer.Option(
        "--mode",
        help="Find passages by vectors and words, by vectors or by words; default: as the collection is set.",
        show_default=False,
    ),
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]


def confirm(question: str, *, yes: bool) -> None:
    """Go on only when the user agrees.

    Raises:
        typer.Abort: The user said no.
        InvalidInputError: Nobody is there to be asked, and ``--yes`` was not given.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInputError("Nobody can be asked here; give --yes to go on.", field="--yes")
    typer.confirm(question, abort=True, err=True)


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
