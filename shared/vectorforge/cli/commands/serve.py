"""``vectorforge up`` and ``vectorforge mcp``: serve over HTTP, or to an agent over stdin and stdout."""

import asyncio
import gc
import ipaddress
import os
import socket
from typing import Annotated

import typer

from vectorforge.cli.options import CollectionOption, DataDirOption, DebugOption
from vectorforge.cli.session import CommandContext, open_session, session_command, warn_of_ignored_variables
from vectorforge.cli.terminal import command
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import ConfigurationError
from vectorforge.local.laptop import LocalSetup, local_setup

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


@session_command
def up(
    context: CommandContext,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.", show_default="8000"),
    ] = None,
    sample: Annotated[bool, typer.Option(help="Ingest the project's README and docs as a sample.")] = True,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve every client that reaches --host without an API key.")
    ] = False,
) -> None:
    """Start everything on this machine: database, sample documents, page and API.

    Needs no Docker, no key and no network. Answers are quoted from the
    documents, until VECTORFORGE_OPENAI_API_KEY or VECTORFORGE_ANTHROPIC_API_KEY
    is set: then that model generates them. Ctrl-C stops everything.

    There is no login by default, so only this machine is served. Other
    machines (--host 0.0.0.0) need VECTORFORGE_AUTH=api_key and a key of
    `vectorforge keys create`, or --insecure.

    Without --host and --port the server listens where AWS_LAMBDA_HTTP_ENDPOINT
    says, as in a Lambda Web Function.

    [bold]Examples[/bold]

        vectorforge up

        VECTORFORGE_ANTHROPIC_API_KEY=... vectorforge up --port 9000 --no-sample
    """
    given_host, given_port = listening_address(os.environ.get("AWS_LAMBDA_HTTP_ENDPOINT"))
    host, port = given_host if host is None else host, given_port if port is None else port
    config = serving_config(VectorForgeConfig.from_environment(), host, insecure=insecure)
    gc.disable()  # until serve_laptop has loaded everything
    try:
        _serve(context, config, (host, port), sample=sample)
    finally:
        gc.enable()


def _serve(
    context: CommandContext, config: VectorForgeConfig, address: tuple[str, int], *, sample: bool
) -> None:
    from vectorforge.cli.commands.server import new_event_loop

    host, terminal = address[0], context.terminal
    with bind(*address) as bound:
        if host not in LOOPBACK and config.server.auth == "local":
            terminal.warn(
                f"Every client that reaches {host} can read and change the documents without a login."
            )
        warn_of_ignored_variables(terminal)
        terminal.note("Starting the database ...")
        with local_setup(config, data_dir=context.data_dir, supervised=True, create=True) as setup:
            from vectorforge.cli.commands.startup import serve_laptop  # imports take a second

            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(serve_laptop(terminal, setup, bound, reachable_url(bound), sample=sample))
        terminal.note("Stopped.")


def serving_config(config: VectorForgeConfig, host: str, *, insecure: bool = False) -> VectorForgeConfig:
    """Return the settings of a laptop: its own names as allowed hosts; no login, unless one is configured.

    Raises:
        ConfigurationError: Other machines would be served without a login.
    """
    server = config.server
    chosen = "auth" in server.model_fields_set or bool(server.api_keys)
    auth = server.auth if chosen else "local"
    if auth == "local" and host not in LOOPBACK and not insecure:
        raise ConfigurationError(
            f"--host {host} lets other machines read and change the documents without a login. "
            "Set VECTORFORGE_AUTH=api_key and create a key (`vectorforge keys create`), or use --insecure if "
            "that is intended."
        )
    # The Host check prevents access by a web page through its own host name (DNS rebinding).
    names = [*LOOPBACK, *own_names(host), *server.allowed_hosts]
    changes = {"auth": auth, "allowed_hosts": list(dict.fromkeys(names))}
    return config.model_copy(update={"server": server.model_copy(update=changes)})


def mcp(
    collection: CollectionOption = None, data_dir: DataDirOption = None, debug: DebugOption = False
) -> None:
    """Serve your documents as tools for agents (Model Context Protocol over stdin and stdout).

    The tools search, answer, and list and read documents; docs/use/mcp.md
    describes them. The host starts this command itself; only messages go to
    stdout, the log goes to stderr. Hosts on other machines can use /mcp of a
    running server.

    [bold]Claude Desktop[/bold] (claude_desktop_config.json) and other hosts:

        {"mcpServers": {"vectorforge": {

          "command": "uv",

          "args": ["run", "--directory", "/path/to/vectorforge",

                   "vectorforge", "mcp", "--collection", "default"]}}}

    Provider keys go into "env", next to "args".
    """
    with command(json_output=False, debug=debug) as terminal:
        from vectorforge.api.mcp.server import serve_stdio

        config = VectorForgeConfig.from_environment()
        if collection is not None:
            query = config.query.model_copy(update={"default_collection": collection})
            config = config.model_copy(update={"query": query})

        async def serve(setup: LocalSetup) -> None:
            async with open_session(setup, terminal) as session:
                if collection is not None:
                    await session.collection(collection)
                await serve_stdio(session.application, session.services)

        warn_of_ignored_variables(terminal)
        with local_setup(config, data_dir=data_dir, supervised=True, create=True) as setup:
            asyncio.run(serve(setup))


def listening_address(endpoint: str | None) -> tuple[str, int]:
    """Return host and port of an ``AWS_LAMBDA_HTTP_ENDPOINT``, which is "host:port"; without one the default.

    Lambda sets it for Web Functions: https://docs.aws.amazon.com/lambda/latest/dg/web-functions.html

    Raises:
        ConfigurationError: It has another form.
    """
    if not endpoint:
        return "127.0.0.1", 8000
    host, colon, port = endpoint.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ConfigurationError("AWS_LAMBDA_HTTP_ENDPOINT must be host:port, such as 0.0.0.0:3000.")
    return host.removeprefix("[").removesuffix("]"), int(port)


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
    entries = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    return [
        entry.address.partition("%")[0]  # without the zone of a link-local address
        for family in (socket.AF_INET, socket.AF_INET6)
        for entry in entries
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
