"""Commands on a tenant's data: open the database and the application, run the work, print its result."""

import asyncio
import difflib
import functools
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from vectorforge.aws.database_login import as_migrator
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.cli.options import DataDirOption, DebugOption, JsonOption, source_name
from vectorforge.cli.terminal import Terminal, command
from vectorforge.config import EmbeddingSettings, LLMSettings, VectorForgeConfig, known_variables
from vectorforge.db.repositories.document_repo import Document
from vectorforge.db.schema.migrate import migrate
from vectorforge.db.tenant_database import storable_text
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import DatabaseError, InvalidInputError, NotFoundError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.local.laptop import LocalSetup, local_setup
from vectorforge.types import Collection

T = TypeVar("T")
Body = Callable[..., None]
"""Body of a command: its first parameter is a ``CommandContext``, the others are its own options.

A parameter whose type is a dataclass stands for one option per field."""

_PREFIX = "VECTORFORGE_"
_CLIENT_VARIABLES = frozenset({"VECTORFORGE_URL", "VECTORFORGE_API_KEY"})
"""Variables of the example clients."""
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

    def collection_name(self, name: str | None) -> str:
        """Return the name given, or the default one for None.

        Raises:
            InvalidInputError: It is empty, such as that of an unset shell variable.
        """
        if name is not None and not name.strip():
            raise InvalidInputError("The name of the collection is empty.", field="--collection")
        return self.config.query.default_collection if name is None else name

    async def collection(self, name: str | None, *, profile_id: int | None = None) -> Collection:
        """Return the collection with this name or id; None is the default, for a profile the profiles' one.

        Raises:
            NotFoundError: It does not exist; the text explains how to create it.
        """
        if name is None and profile_id is not None:
            return await self.services.profiles.collection()
        requested = self.collection_name(name)
        try:
            return await self.services.find_collection(requested)
        except NotFoundError as exc:
            raise NotFoundError(
                f"{exc} `vectorforge collections list` shows all; "
                f"`vectorforge ingest PATH --collection {requested}` creates it."
            ) from exc

    async def collection_or_new(self, name: str | None) -> Collection:
        """Return the collection; create it with the configured embedding model if it is missing."""
        requested = self.collection_name(name)
        try:
            return await self.services.find_collection(requested)  # also by id
        except NotFoundError:
            return await self.services.find_or_create_collection(requested)

    @asynccontextmanager
    async def ingest_target(self, name: str | None) -> AsyncIterator[Collection]:
        """Yield the collection to ingest into; one that is created here is deleted if it stays empty."""
        try:
            target, is_new = await self.collection(name), False
        except NotFoundError:
            target, is_new = await self.collection_or_new(name), True
        try:
            yield target
        finally:
            if is_new:
                with suppress(DatabaseError):  # the error of the ingestion says more
                    await self.services.collections.delete_empty(target.id)

    async def with_ocr(self, collection: Collection, ocr: bool | None) -> Collection:
        """Return the collection after changing its setting; None leaves it as it is."""
        if ocr is None or ocr == collection.ocr:
            return collection
        await self.services.collections.set_ingestion(collection.id, ocr=ocr)
        return replace(collection, ocr=ocr)

    async def document(self, collection: str | None, source: str) -> Document:
        """Return the document with this source, or of the file with this path.

        Raises:
            InvalidInputError: The source is not valid UTF-8, as a file's name may be.
            NotFoundError: There is no such collection or document.
        """
        if (text := storable_text(source)) != source:
            shown = "`vectorforge documents list` shows sources as they are stored."
            raise InvalidInputError(f'"{text}" is not valid UTF-8. {shown}', field="SOURCE")
        target = await self.collection(collection)
        for name in (source, source_name(Path(source))):
            if document := await self.services.documents.find_by_source(target.id, name):
                return document
        raise NotFoundError(f'There is no document "{source}" in the collection "{target.name}".')


def ignored_variables() -> Iterator[tuple[str, str]]:
    """Yield each VECTORFORGE_* variable of the environment that is not a setting, with a remedy."""
    known = sorted(name.removeprefix(_PREFIX) for name in known_variables() | _CLIENT_VARIABLES)
    for name in sorted(os.environ):
        own = name.upper().removeprefix(_PREFIX)
        if name.upper().startswith(_PREFIX) and own not in known:
            near = difflib.get_close_matches(own, known, n=1)
            yield name, f"Did you mean {_PREFIX}{near[0]}?" if near else "See docs/operate/configuration.md."


def warn_of_ignored_variables(terminal: Terminal) -> None:
    """Warn of each VECTORFORGE_* variable of the environment that is not a setting."""
    for name, remedy in ignored_variables():
        terminal.warn(f"{name} is not a setting and is ignored. {remedy}")


def unavailable_default(
    settings: EmbeddingSettings | LLMSettings, registry: EmbeddingProviderRegistry | LLMProviderRegistry
) -> str | None:
    """Return a note on a default provider in the settings that is not registered; None if it is."""
    name = settings.default_provider
    if "default_provider" not in settings.model_fields_set or name in registry.list_providers():
        return None
    kind = "LLM" if isinstance(settings, LLMSettings) else "EMBEDDING"
    return f"VECTORFORGE_DEFAULT_{kind}_PROVIDER: {registry.unknown(name)}"


@asynccontextmanager
async def open_session(
    setup: LocalSetup, terminal: Terminal, *, tenant: str | None = None
) -> AsyncIterator[Session]:
    """Open the application on this database for a tenant (default: the local one); migrate the embedded one.

    Raises:
        DatabaseUnavailableError: The database cannot be reached.
        UnsafeRoleError: The role of the database URL bypasses row-level security.
    """
    if setup.embedded and setup.migrator_url is not None:
        applied = await migrate(setup.migrator_url)
        if applied:
            terminal.note(f"Database prepared: {len(applied)} migrations applied.")
    async with Application.build(setup.config) as application:
        if note := unavailable_default(setup.config.embedding, application.embedding_registry):
            terminal.warn(note)
        if note := unavailable_default(setup.config.llm, application.llm_registry):
            terminal.warn(note)
        chosen = setup.config.server.local_tenant if tenant is None else tenant
        yield Session(application, application.for_tenant(chosen))


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
        create: bool = False,
    ) -> T:
        """Run the work in a session of a tenant (default: local); ``create`` a missing local database."""

        async def run(setup: LocalSetup) -> T:
            async with open_session(setup, self.terminal, tenant=tenant) as session:
                return await work(session)

        warn_of_ignored_variables(self.terminal)
        settings = config or VectorForgeConfig.from_environment()
        with local_setup(settings, data_dir=self.data_dir, create=create) as setup:
            return asyncio.run(run(setup))

    def run_as_migrator(self, work: Callable[[str], Awaitable[T]]) -> T:
        """Run work that receives the connection string of the role that owns the schema."""
        warn_of_ignored_variables(self.terminal)
        with local_setup(VectorForgeConfig.from_environment(), data_dir=self.data_dir) as setup:
            return asyncio.run(as_migrator(setup.config.database, work))

    def show(self, result: T, as_json: Callable[[T], object], as_text: Callable[[Terminal, T], None]) -> None:
        """Print a result: one JSON document with ``--json``, otherwise text."""
        if self.terminal.json_output:
            self.terminal.json(as_json(result))
        else:
            as_text(self.terminal, result)

    def show_page(
        self,
        entries: Sequence[T],
        offset: int,
        what: str,
        create: str,
        as_json: Callable[[T], object],
        as_text: Callable[[Terminal, Sequence[T]], None],
    ) -> None:
        """Print a page of a list after ``offset`` entries; ``create`` is the note on an empty list."""
        if self.terminal.json_output:
            self.terminal.json({what: [*map(as_json, entries)]})
        elif entries:
            as_text(self.terminal, entries)
        else:
            self.terminal.note(f"There are no more than {offset} {what}." if offset else create)


def session_command(body: Body) -> Body:
    """Build a Typer command with the options that all commands share: --json, --data-dir and --debug.

    The body receives a ``CommandContext``; its errors become one line and an exit code.
    """
    return _with_shared_options(body, ("json_output", "data_dir", "debug"))


def offline_command(body: Body) -> Body:
    """Build a Typer command that needs no database: ``session_command`` without --data-dir."""
    return _with_shared_options(body, ("json_output", "debug"))


def _with_shared_options(body: Body, names: tuple[str, ...]) -> Body:
    _, *own = inspect.signature(body).parameters.values()
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation for parameter in own if is_dataclass(parameter.annotation)
    }

    @functools.wraps(body)
    def run(*, json_output: bool, debug: bool, data_dir: Path | None = None, **options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{field.name: options.pop(field.name) for field in fields(group)})
        with command(json_output=json_output, debug=debug) as terminal:
            body(CommandContext(terminal, data_dir), **options)

    parameters: list[inspect.Parameter] = []
    for parameter in own:
        if group := groups.get(parameter.name):
            parameters += [_option(field.name, field.default, field.type) for field in fields(group)]
        else:
            parameters.append(_option(parameter.name, parameter.default, parameter.annotation))
    for name in names:
        option, default = _SHARED_OPTIONS[name]
        parameters.append(_option(name, default, option))
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}  # read by Typer
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run


def _option(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
