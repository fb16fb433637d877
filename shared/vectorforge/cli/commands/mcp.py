"""``vectorforge mcp``."""

from typing import TYPE_CHECKING

from vectorforge.cli.options import CollectionOption, DataDirOption, DebugOption
from vectorforge.cli.terminal import Terminal, command

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.config import VectorForgeConfig
    from vectorforge.local.laptop import LocalSetup


def mcp(
    collection: CollectionOption = None, data_dir: DataDirOption = None, debug: DebugOption = False
) -> None:
    """Give an agent's host your documents as tools (Model Context Protocol, over stdin and stdout).

    The tools are semantic_search, semantic_search_with_context and ask. The host starts this command
    itself; messages are all that is on stdout, the log is on stderr. For hosts on other machines there is
    /mcp of a running server.

    [bold]Claude Desktop[/bold] (claude_desktop_config.json) and other hosts:

        {"mcpServers": {"vectorforge": {

          "command": "uv",

          "args": ["run", "--directory", "/path/to/vectorforge",

                   "vectorforge", "mcp", "--collection", "default"]}}}

    Providers' keys go into "env", beside "args".
    """
    with command(json_output=False, debug=debug) as terminal:
        from vectorforge.cli.commands.server import stop_on_sigterm
        from vectorforge.config import VectorForgeConfig
        from vectorforge.local.laptop import local_setup

        config = _with_default_collection(VectorForgeConfig.from_environment(), collection)
        with stop_on_sigterm(), local_setup(config, data_dir=data_dir, supervised=True) as setup:
            _serve(terminal, setup)


def _with_default_collection(config: "VectorForgeConfig", collection: str | None) -> "VectorForgeConfig":
    if collection is None:
        return config
    query = config.query.model_copy(update={"default_collection": collection})
    return config.model_copy(update={"query": query})


def _serve(terminal: Terminal, setup: "LocalSetup") -> None:
    import asyncio

    from vectorforge.api.mcp.server import serve_stdio
    from vectorforge.cli.session import open_session

    async def serve() -> None:
        async with open_session(setup, terminal) as session:
            await serve_stdio(session.application, session.services)

    asyncio.run(serve())
