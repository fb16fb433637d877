"""The frame of commands that work on a tenant's data: open the database, do the work, print what it gives.

A command's way to the services: settings, database, application, tenant.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vectorforge.bootstrap import Application, TenantServices
from vectorforge.cli.terminal import Terminal, command
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import ConflictError, NotFoundError
from vectorforge.local.laptop import LocalSetup, local_setup
from vectorforge.types import Collection

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


@dataclass(frozen=True, slots=True)
class Session:
    """An open application, and the tenant whose data the command works on."""

    application: Application
    services: TenantServices

    @property
    def config(self) -> VectorForgeConfig:
        """The settings in use."""
        return self.application.config

    def of_tenant(self, tenant_id: str) -> "Session":
        """The same for another tenant."""
        return Session(self.application, self.application.for_tenant(tenant_id))

    async def collection(self, name: str | None, *, profile_id: int | None = None) -> Collection:
        """The collection of this name or id; None means the configured default: of a profile, the profiles'.

        Raises:
            NotFoundError: There is none; the text says how to make one.
        """
        if name is None and profile_id is not None:
            return await self.services.profiles.collection()
        wanted = name or self.config.query.default_collection
        try:
            return await self.services.find_collection(wanted)
        except NotFoundError as exc:
            raise NotFoundError(
                f'There is no collection "{wanted}". `vectorforge collections list` shows what is there; '
                f"`vectorforge ingest PATH --collection {wanted}` makes it."
            ) from exc

    async def collection_or_new(self, name: str | None) -> Collection:
        """As ``collection``, but made with the configured embedding model when it is missing."""
        wanted = name or self.config.query.default_collection
        try:
            return await self.services.find_collection(wanted)
        except NotFoundError:
            pass
        try:
            return await self.services.create_collection(wanted)
        except ConflictError:  # another process was a moment faster
            return await self.services.find_collection(wanted)


@asynccontextmanager
async def open_session(setup: LocalSetup, terminal: Terminal) -> AsyncIterator[Session]:
    """Open the application on this database; the embedded one is brought up to date first.

    Raises:
        DatabaseUnavailableError: The database cannot be reached.
        UnsafeRoleError: The role of the database URL bypasses row-level security.
    """
    if setup.embedded and setup.migrator_url is not None:
        from vectorforge.db.schema.migrate import migrate

        applied = await migrate(setup.migrator_url)
        if applied:
            terminal.note(f"Database prepared: {len(applied)} migrations applied.")
    async with Application.build(setup.config) as application:
        yield Session(application, application.for_tenant(setup.config.server.local_tenant))


def run_in_session(
    terminal: Terminal,
    data_dir: Path | None,
    work: Callable[[Session], Awaitable[T]],
    *,
    config: VectorForgeConfig | None = None,
) -> T:
    """Read the settings if none are given, open a session, run a command's work in it, close all again."""
    import asyncio

    async def run(setup: LocalSetup) -> T:
        async with open_session(setup, terminal) as session:
            return await work(session)

    with local_setup(config or VectorForgeConfig.from_environment(), data_dir=data_dir) as setup:
        return asyncio.run(run(setup))
