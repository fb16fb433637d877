"""The frame of commands that work on a tenant's data: open the database, do the work, print what it gives."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vectorforge.cli.terminal import Terminal, command

if TYPE_CHECKING:  # loaded once the command's arguments are known to be good
    from vectorforge.cli.session import Session
    from vectorforge.config import VectorForgeConfig

T = TypeVar("T")


class TenantCommand:
    """One command while it runs.

    Args:
        terminal: Where it prints.
        data_dir: Of the embedded database; None: as the settings say.
        tenant: Whose data; None: the settings' local tenant.
    """

    def __init__(self, terminal: Terminal, data_dir: Path | None, tenant: str | None) -> None:
        self.terminal = terminal
        self._data_dir = data_dir
        self._tenant = tenant

    def run(
        self, work: "Callable[[Session], Awaitable[T]]", *, config: "VectorForgeConfig | None" = None
    ) -> T:
        """Open the database, do the work for the tenant, close all again; see ``run_in_session``."""
        from vectorforge.cli.session import run_in_session

        async def for_tenant(session: "Session") -> T:
            return await work(session if self._tenant is None else session.of_tenant(self._tenant))

        return run_in_session(self.terminal, self._data_dir, for_tenant, config=config)

    def show(self, result: T, as_json: Callable[[T], object], as_text: Callable[[Terminal, T], None]) -> None:
        """Print a result: as one JSON document where that was asked for, else for a person."""
        if self.terminal.json_output:
            self.terminal.json(as_json(result))
        else:
            as_text(self.terminal, result)


@contextmanager
def tenant_command(
    *, json_output: bool, data_dir: Path | None, debug: bool, tenant: str | None = None
) -> Iterator[TenantCommand]:
    """As ``command``, for one that works on a tenant's data."""
    with command(json_output=json_output, debug=debug) as terminal:
        yield TenantCommand(terminal, data_dir, tenant)
