"""``vectorforge erase``."""

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any

import typer

from vectorforge.cli.options import CollectionOption, TenantOption, YesOption, confirm
from vectorforge.cli.session import CommandContext, Session, offline_command, session_command
from vectorforge.cli.terminal import ExitCode, Terminal
from vectorforge.config import VectorForgeConfig
from vectorforge.db.login import parsed
from vectorforge.erasure.repo import Erasure, Subject, sha256_of
from vectorforge.errors import InvalidInputError

app = typer.Typer(
    no_args_is_help=True,
    help="Erase a document, a profile, a collection or a tenant with all derived data, with a certificate.",
    epilog="An interrupted erasure is resumed by the same command, or by a server.",
)


@app.command()
@session_command
def document(
    context: CommandContext,
    source: Annotated[str, typer.Argument(help="Source, as `documents list` shows it.")],
    collection: CollectionOption = None,
    tenant: TenantOption = None,
    yes: YesOption = False,
) -> None:
    """Erase a document: its chunks, vectors, answers based on it and uploaded file.

    Queries answered from it stay in the query log, without texts;
    with VECTORFORGE_ERASED_LOGS=rows they are deleted.

    [bold]Example[/bold]

        vectorforge erase document ./letter.pdf --json > certificate.json
    """

    async def subject(session: Session) -> Subject:
        found = await session.document(collection, source)
        confirm(f'Erase the document "{source}" with all derived data?', yes=yes)
        return Subject("document", document_id=found.id)

    _erase(context, tenant, subject)


@app.command()
@session_command
def profile(
    context: CommandContext,
    number: Annotated[int, typer.Argument(min=0, help="The profile's number.")],
    tenant: TenantOption = None,
    yes: YesOption = False,
) -> None:
    """Erase a profile with all its documents."""

    async def subject(session: Session) -> Subject:
        collection = await session.services.profiles.collection()
        confirm(f"Erase the profile {number} with all derived data?", yes=yes)
        return Subject("profile", collection.id, profile_id=number)

    _erase(context, tenant, subject)


@app.command()
@session_command
def collection(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="Name or id.")],
    tenant: TenantOption = None,
    yes: YesOption = False,
) -> None:
    """Erase a collection with its documents and queries."""

    async def subject(session: Session) -> Subject:
        found = await session.collection(name)
        confirm(f'Erase the collection "{name}" with all derived data?', yes=yes)
        return Subject("collection", found.id)

    _erase(context, tenant, subject)


@app.command("tenant")
@session_command
def whole_tenant(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="Tenant id; `local` by default on a laptop.")],
    yes: YesOption = False,
) -> None:
    """Erase all data of a tenant: documents, queries, conversations, keys, settings.

    The tenant's requests are rejected until it completes. It cannot be undone.

    [bold]Example[/bold]

        vectorforge erase tenant acme --yes --json > acme.json
    """
    if not yes and sys.stdin.isatty():
        typed = typer.prompt(f"All data of {name} will be deleted. Type its name to continue", err=True)
        if typed != name:
            raise typer.Abort
    else:
        confirm(f"Erase the tenant {name}?", yes=yes)

    async def subject(session: Session) -> Subject:
        return Subject("tenant")

    _erase(context, name, subject)


@app.command("list")
@session_command
def list_erasures(
    context: CommandContext,
    tenant: TenantOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of erasures.")] = 50,
) -> None:
    """List erasures with their certificates, the newest first."""
    listed = context.run(
        lambda session: session.services.eraser.erasures.list(limit), tenant=tenant, config=_as_eraser()
    )
    context.show(listed, lambda erasures: {"erasures": [*map(_as_body, erasures)]}, _print_list)


@app.command()
@offline_command
def verify(
    context: CommandContext,
    file: Annotated[
        Path, typer.Argument(help="Output of an erasure with --json, or the API's response.", exists=True)
    ],
) -> None:
    """Check that a certificate is unchanged by its SHA-256."""
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
        copied = {name: given[name] for name in ("kind", "erased", "requested_by") if name in given}
        actual, expected = sha256_of(given["certificate"]), given["sha256"]
        unchanged = actual == expected and copied.items() <= given["certificate"].items()
    except (AttributeError, ValueError, TypeError, KeyError) as exc:
        raise InvalidInputError(f"{file} contains no certificate.", field="FILE") from exc
    if context.terminal.json_output:
        context.terminal.json({"sha256": actual, "unchanged": unchanged})
    else:
        changed = expected if actual != expected else "fields next to the certificate differ from it"
        context.terminal.line(f"{actual}  {'unchanged' if unchanged else f'CHANGED: {changed}'}")
    if not unchanged:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _erase(
    context: CommandContext, tenant: str | None, subject: Callable[[Session], Awaitable[Subject]]
) -> None:
    """Run an erasure with progress on stderr, and print the certificate."""

    async def work(session: Session) -> Erasure:
        eraser = session.application.shared.eraser(session.services.tenant_id)
        logs = session.config.database.erased_logs
        erasure_id = await eraser.begin(await subject(session), logs=logs, requested_by=f"cli: {getuser()}")
        done = await eraser.run(erasure_id, on_progress=_progress(context.terminal))
        if done.kind == "tenant" and not any(done.counts.values()):
            context.terminal.warn(f"No data of the tenant {session.services.tenant_id} was found.")
        return done

    context.show(context.run(work, tenant=tenant, config=_as_eraser()), _as_body, _print)


def _progress(terminal: Terminal) -> Callable[[str, int], None]:
    shown: set[str] = set()

    def show(stage: str, _rows: int) -> None:
        if stage not in shown:
            terminal.note(f"{stage} ...")
        shown.add(stage)

    return show


def _as_eraser() -> VectorForgeConfig:
    """Return the settings, with the eraser's role if its URL is set."""
    config = VectorForgeConfig.from_environment()
    eraser_url = config.database.eraser_database_url
    if eraser_url is None:
        return config
    parsed(eraser_url.get_secret_value(), variable="VECTORFORGE_ERASER_DATABASE_URL")
    database = config.database.model_copy(update={"database_url": eraser_url})
    return config.model_copy(update={"database": database})


def _as_body(done: Erasure) -> Any:
    from vectorforge.api.admin.erasures import ErasureBody

    return ErasureBody.of(done)


def _print(terminal: Terminal, done: Erasure) -> None:
    terminal.table(["Erased", "Number#"], sorted(done.counts.items()))
    terminal.line(f"certificate {done.id}")
    terminal.line(f"sha256      {done.certificate_sha256}")


def _print_list(terminal: Terminal, erasures: Sequence[Erasure]) -> None:
    rows = [
        (str(e.id), e.kind, e.stage, f"{e.begun_at:%Y-%m-%d %H:%M}", sum(e.counts.values()), e.requested_by)
        for e in erasures
    ]
    terminal.table(["Id", "Kind", "Stage", "Begun", "Erased#", "By"], rows)
