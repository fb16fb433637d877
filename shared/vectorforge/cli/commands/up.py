"""``vectorforge up``."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.session import CommandContext, session_command
from vectorforge.cli.terminal import Terminal

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.config import VectorForgeConfig


@session_command
def up(
    context: CommandContext,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    sample: Annotated[
        bool, typer.Option(help="Ingest the project's README and docs, so that there is something to ask.")
    ] = True,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let whoever reaches --host in without an API key.")
    ] = False,
) -> None:
    """Start everything on this machine: database, sample documents, page and API.

    Needs no Docker, no key and no network. Answers are quoted from the
    documents, until VECTORFORGE_OPENAI_API_KEY or VECTORFORGE_ANTHROPIC_API_KEY
    is set: then that model writes them. Ctrl-C stops everything.

    Without VECTORFORGE_API_KEYS there is no login, so only this machine is
    served; other machines (--host 0.0.0.0) need keys, or --insecure.

    [bold]Examples[/bold]

        vectorforge up

        VECTORFORGE_ANTHROPIC_API_KEY=... vectorforge up --port 9000 --no-sample
    """
    from vectorforge.config import VectorForgeConfig

    config = serving_config(VectorForgeConfig.from_environment(), host, insecure=insecure)
    gc.disable()  # until all is loaded: see serve_laptop
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

    from vectorforge.cli.commands.server import LOOPBACK, bind, new_event_loop, stop_on_sigterm
    from vectorforge.local.laptop import local_setup

    host, port = address
    with bind(host, port) as bound, stop_on_sigterm():
        if host not in LOOPBACK and config.server.auth == "local":
            terminal.warn(
                f"Whoever can reach {host} can read and change the documents: there is no login here."
            )
        terminal.note("Starting the database ...")
        with local_setup(config, data_dir=data_dir, supervised=True) as setup:
            from vectorforge.cli.commands.startup import serve_laptop  # takes a second

            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(serve_laptop(terminal, setup, bound, sample=sample))
        terminal.note("Stopped.")


def serving_config(config: "VectorForgeConfig", host: str, *, insecure: bool = False) -> "VectorForgeConfig":
    """The settings of a laptop: only its own names in the Host header; no login, unless one is set.

    Args:
        config: As read from the environment; its ``VECTORFORGE_AUTH`` and ``VECTORFORGE_API_KEYS`` are kept.
        host: Where to listen.
        insecure: Serve other machines without a login too.

    Raises:
        ConfigurationError: Other machines would be served without a login.
    """
    from vectorforge.cli.commands.server import LOOPBACK, own_names
    from vectorforge.errors import ConfigurationError

    server = config.server
    chosen = "auth" in server.model_fields_set or bool(server.api_keys)
    auth = server.auth if chosen else "local"
    if auth == "local" and host not in LOOPBACK and not insecure:
        raise ConfigurationError(
            f"--host {host} lets other machines read and change the documents without a login. "
            "Set VECTORFORGE_AUTH=api_key and make a key (`vectorforge keys create`), or say --insecure if "
            "everybody there may."
        )
    # The Host check keeps a web page elsewhere from reaching the port under its own name (DNS rebinding).
    names = [*LOOPBACK, *own_names(host), *server.allowed_hosts]
    changes = {"auth": auth, "allowed_hosts": list(dict.fromkeys(names))}
    return config.model_copy(update={"server": server.model_copy(update=changes)})
