"""``vectorforge up`` and ``vectorforge mcp``: serve over HTTP, or to an agent over stdin and stdout."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.commands.addresses import LOOPBACK, bind, own_names
from vectorforge.cli.options import CollectionOption, DataDirOption, DebugOption
from vectorforge.cli.session import CommandContext, session_command
from vectorforge.cli.terminal import Terminal, command

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.config import VectorForgeConfig
    from vectorforge.local.laptop import LocalSetup


@session_command
def up(
    context: CommandContext,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8000,
    sample: Annotated[bool, typer.Option(help="Ingest the project's README and docs as a sample.")] = True,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve every client that reaches --host without an API key.")
    ] = False,
) -> None:
    """Start everything on this machine: database, sample documents, page and API.

    Needs no Docker, no key and no network. Answers are quoted from the
    documents, until VECTORFORGE_OPENAI_API_KEY or VECTORFORGE_ANTHROPIC_API_KEY
    is set: then that model generates them. Ctrl-C stops everything.

    Without VECTORFORGE_API_KEYS there is no login, so only this machine is
    served; other machines (--host 0.0.0.0) need keys, or --insecure.

    [bold]Examples[/bold]

        vectorforge up

        VECTORFORGE_ANTHROPIC_API_KEY=... vectorforge up --port 9000 --no-sample
    """
    from vectorforge.config import VectorForgeConfig

    config = serving_config(VectorForgeConfig.from_environment(), host, insecure=insecure)
    gc.disable()  # until serve_laptop has loaded everything
    try:
        _serve(context.terminal, config, (host, port), context.data_dir, sample=sample)
    finally:
        gc.enable()


def _serve(
    terminal: Terminal,
    config: "VectorForgeConfig",
    address: tuple[str, int],
    data_dir: Path | None,
    *,
    sample: bool,
) -> None:
    import asyncio

    from vectorforge.cli.commands.server import new_event_loop, stop_on_sigterm
    from vectorforge.local.laptop import local_setup

    host, port = address
    with bind(host, port) as bound, stop_on_sigterm():
        if host not in LOOPBACK and config.server.auth == "local":
            terminal.warn(
                f"Every client that reaches {host} can read and change the documents without a login."
            )
        terminal.note("Starting the database ...")
        with local_setup(config, data_dir=data_dir, supervised=True) as setup:
            from vectorforge.cli.commands.startup import serve_laptop  # imports take a second

            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(serve_laptop(terminal, setup, bound, sample=sample))
        terminal.note("Stopped.")


def serving_config(config: "VectorForgeConfig", host: str, *, insecure: bool = False) -> "VectorForgeConfig":
    """Return the settings of a laptop: its own names as allowed hosts; no login, unless one is configured.

    Args:
        config: As read from the environment; its ``VECTORFORGE_AUTH`` and ``VECTORFORGE_API_KEYS`` are kept.
        host: Where to listen.
        insecure: Serve other machines without a login too.

    Raises:
        ConfigurationError: Other machines would be served without a login.
    """
    from vectorforge.errors import ConfigurationError

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

    The tools are semantic_search, semantic_search_with_context and ask. The host starts this command
    itself; only messages go to stdout, the log goes to stderr. Hosts on other machines can use
    /mcp of a running server.

    [bold]Claude Desktop[/bold] (claude_desktop_config.json) and other hosts:

        {"mcpServers": {"vectorforge": {

          "command": "uv",

          "args": ["run", "--directory", "/path/to/vectorforge",

                   "vectorforge", "mcp", "--collection", "default"]}}}

    Provider keys go into "env", next to "args".
    """
    with command(json_output=False, debug=debug) as terminal:
        from vectorforge.cli.commands.server import stop_on_sigterm
        from vectorforge.config import VectorForgeConfig
        from vectorforge.local.laptop import local_setup

        config = _with_default_collection(VectorForgeConfig.from_environment(), collection)
        with stop_on_sigterm(), local_setup(config, data_dir=data_dir, supervised=True) as setup:
            _serve_stdio(terminal, setup)


def _with_default_collection(config: "VectorForgeConfig", collection: str | None) -> "VectorForgeConfig":
    if collection is None:
        return config
    query = config.query.model_copy(update={"default_collection": collection})
    return config.model_copy(update={"query": query})


def _serve_stdio(terminal: Terminal, setup: "LocalSetup") -> None:
    import asyncio

    from vectorforge.api.mcp.server import serve_stdio
    from vectorforge.cli.session import open_session

    async def serve() -> None:
        async with open_session(setup, terminal) as session:
            await serve_stdio(session.application, session.services)

    asyncio.run(serve())
