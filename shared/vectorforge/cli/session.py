"""Commands on a tenant's data: open the database and the application, run the work, print its result."""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vectorforge.bootstrap import Application, TenantServices
from vectorforge.cli.options import DataDirOption, DebugOption, JsonOption
from vectorforge.cli.terminal import Terminal, command
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import ConflictError, NotFoundError
from vectorforge.local.laptop import LocalSetup, local_setup
from vectorforge.types import Collection

T = TypeVar("T")
Body = Callable[..., None]
"""Body of a command: its first parameter is a ``CommandContext``, the others are its own options."""

_SHARED_OPTIONS = {
    "json_output": (JsonOption, False),
    "data_dir": (DataDirOption, None),
    "debug": (DebugOption, False),
}


@dataclass(frozen=True, slots=True)
class Session:
    """An open application, and the tenant that the command works for."""

    application: Application
    services: TenantServices

    @property
    def config(self) -> VectorForgeConfig:
        """Settings in use."""
        return self.application.config

    def of_tenant(self, tenant_id: str) -> "Session":
        """Return the session for another tenant."""
        return Session(self.application, self.application.for_tenant(tenant_id))

    async def collection(self, name: str | None, *, profile_id: int | None = None) -> Collection:
        """Return the collection with this name or id; None is the default, for a profile the profiles' one.

        Raises:
            NotFoundError: It does not exist; the text explains how to create it.
        """
        if name is None and profile_id is not None:
            return await self.services.profiles.collection()
        requested = name or self.config.query.default_collection
        try:
            return await self.services.find_collection(requested)
        except NotFoundError as exc:
            raise NotFoundError(
                f'There is no collection "{requested}". `vectorforge collections list` shows all; '
                f"`vectorforge ingest PATH --collection {requested}` creates it."
            ) from exc

    async def collection_or_new(self, name: str | None) -> Collection:
        """Return the collection; create it with the configured embedding model if it is missing."""
        requested = name or self.config.query.default_collection
        try:
            return await self.services.find_collection(requested)
        except NotFoundError:
            pass
        try:
            return await self.services.create_collection(requested)
        except ConflictError:  # created by another process
            return await self.services.find_collection(requested)


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


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Terminal and data directory of one running command."""

    terminal: Terminal
    data_dir: Path | None = None
    """Folder of the embedded database; None: as configured."""

    def run(
        self,
        work: Callable[[Session], Awaitable[T]],
        *,
        tenant: str | None = None,
        config: VectorForgeConfig | None = None,
    ) -> T:
        """Open a session, run the work in it, and close everything.

        Args:
            work: Receives the session.
            tenant: Tenant whose data it works on; default: the local tenant.
            config: Settings; default: those of the environment.
        """
        import asyncio

        async def run(setup: LocalSetup) -> T:
            async with open_session(setup, self.terminal) as session:
                return await work(session if tenant is None else session.of_tenant(tenant))

        with local_setup(config or VectorForgeConfig.from_environment(), data_dir=self.data_dir) as setup:
            return asyncio.run(run(setup))

    def show(self, result: T, as_json: Callable[[T], object], as_text: Callable[[Terminal, T], None]) -> None:
        """Print a result: one JSON document with ``--json``, otherwise text."""
        if self.terminal.json_output:
            self.terminal.json(as_json(result))
        else:
            as_text(self.terminal, result)


def session_command(body: Body) -> Body:
    """Build a Typer command with the options that all commands share: --json, --data-dir and --debug.

    The body receives a ``CommandContext``; its errors become one line and an exit code.
    """
    return _with_shared_options(body, ("json_output", "data_dir", "debug"))


def offline_command(body: Body) -> Body:
    """Build a Typer command that needs no database: ``session_command`` without --data-dir."""
    return _with_shared_options(body, ("json_output", "debug"))


def _with_shared_options(body: Body, names: tuple[str, ...]) -> Body:
    @functools.wraps(body)
    def run(*, json_output: bool, debug: bool, data_dir: Path | None = None, **options: Any) -> None:
        with command(json_output=json_output, debug=debug) as terminal:
            body(CommandContext(terminal, data_dir), **options)

    _, *parameters = inspect.signature(body).parameters.values()
    for name in names:
        option, default = _SHARED_OPTIONS[name]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=option))
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}  # read by Typer
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run
