"""``vectorforge up``."""

from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.options import DataDirOption, DebugOption, JsonOption
from vectorforge.cli.terminal import command

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.config import VectorForgeConfig

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def up(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    sample: Annotated[
        bool, typer.Option(help="Ingest the project's README and docs, so that there is something to ask.")
    ] = True,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Start everything on this machine: database, sample documents, page and API.

    Needs no Docker, no key and no network. Answers are quoted from the
    documents, until VECTORFORGE_OPENAI_API_KEY or VECTORFORGE_ANTHROPIC_API_KEY
    is set: then that model writes them. Ctrl-C stops everything.

    [bold]Examples[/bold]

        vectorforge up

        VECTORFORGE_ANTHROPIC_API_KEY=... vectorforge up --port 9000 --no-sample
    """
    with command(json_output=json_output, debug=debug) as terminal:
        import asyncio

        from vectorforge.cli.server import bind, stop_on_sigterm
        from vectorforge.config import VectorForgeConfig
        from vectorforge.local.laptop import local_setup

        config = serving_config(VectorForgeConfig.from_environment(), host)
        with bind(host, port) as bound, stop_on_sigterm():
            if host not in _LOOPBACK:
                terminal.warn(
                    f"Whoever can reach {host} can read and change the documents: there is no login here."
                )
            terminal.note("Starting the database ...")
            with local_setup(config, data_dir=data_dir) as setup:
                from vectorforge.cli.startup import serve_laptop  # takes a second

                asyncio.run(serve_laptop(terminal, setup, bound, sample=sample))
            terminal.note("Stopped.")


def serving_config(config: "VectorForgeConfig", host: str) -> "VectorForgeConfig":
    """The settings of a laptop: no login, and only this machine's own names in the Host header."""
    import socket

    # The Host check keeps a web page elsewhere from reaching the port under its own name (DNS rebinding).
    names = [*_LOOPBACK, host, *config.server.allowed_hosts]
    if host not in _LOOPBACK:
        names += [socket.gethostname(), socket.getfqdn()]
    server = config.server.model_copy(update={"auth": "local", "allowed_hosts": list(dict.fromkeys(names))})
    return config.model_copy(update={"server": server})
