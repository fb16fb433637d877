"""``vectorforge keys``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from vectorforge.cli.options import LimitOption, OffsetOption, TenantOption, YesOption, confirm
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.db.repositories.api_key_repo import ApiKey, NewApiKey
from vectorforge.errors import NotFoundError
from vectorforge.types import Scope

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list, rotate and revoke API keys.\n\n"
    "A key belongs to one tenant and has one scope: [bold]read[/bold] (query, search), [bold]write[/bold] "
    "(also add, change and delete documents) or [bold]admin[/bold] (also keys, logs and costs). Only its "
    "SHA-256 is stored, so it is shown once. Clients send [cyan]Authorization: Bearer <key>[/cyan].",
)

KeyIdArgument = Annotated[
    str, typer.Argument(help="Key id: the 16 hex digits after vf_, as in `keys list`.", metavar="ID")
]


@app.command()
@session_command
def create(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="Purpose; 1 to 100 characters.")],
    scope: Annotated[Scope, typer.Option(help="Scope.")] = Scope.READ,
    tenant: TenantOption = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=3650, help="Days until it expires.", show_default="never")
    ] = None,
) -> None:
    """Create a key and print it; it cannot be shown again.

    [bold]Examples[/bold]

        vectorforge keys create "web page" --tenant acme

        vectorforge keys create nightly-import --tenant acme --scope write --days 90

        KEY=$(vectorforge keys create ci --tenant acme --json | jq -r .key)
    """
    lifetime = None if days is None else timedelta(days=days)
    made = context.run(
        lambda session: session.services.api_keys.create(name, scope, lifetime=lifetime),
        tenant=tenant,
        create=True,
    )
    context.show(made, _as_new_body, _print_new)


@app.command("list")
@session_command
def list_keys(
    context: CommandContext, tenant: TenantOption = None, limit: LimitOption = None, offset: OffsetOption = 0
) -> None:
    """List a tenant's keys, newest first; expired keys are removed after 90 days."""
    keys = context.run(
        lambda session: session.services.api_keys.list(limit=limit, offset=offset), tenant=tenant
    )
    create = "There are no keys. `vectorforge keys create NAME` creates one."
    context.show_page(keys, offset, "keys", create, _as_body, _print_list)


@app.command()
@session_command
def rotate(
    context: CommandContext,
    key_id: KeyIdArgument,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=720, help="Hours for which the old key stays valid.")
    ] = 24,
    tenant: TenantOption = None,
) -> None:
    """Create a key that replaces another; both are valid during the overlap window.

    The new key has the name, scope and lifetime of the old one. Deploy it to
    the clients before the old one expires.

    [bold]Example[/bold]

        vectorforge keys rotate 0f3a9c4e5d6b7a81 --tenant acme --overlap-hours 48
    """
    overlap = timedelta(hours=overlap_hours)
    with _tenant_hint(tenant):
        made = context.run(
            lambda session: session.services.api_keys.rotate(key_id, overlap=overlap), tenant=tenant
        )
    context.show(made, _as_new_body, _print_new)


@app.command()
@session_command
def revoke(
    context: CommandContext, key_id: KeyIdArgument, tenant: TenantOption = None, yes: YesOption = False
) -> None:
    """Revoke a key immediately on every server; running requests continue."""

    async def work(session: Session) -> ApiKey:
        keys = session.services.api_keys
        if any(key.id == key_id and key.revoked_at is None for key in await keys.list()):
            confirm(f"Revoke the key {key_id}? Clients that still use it are rejected.", yes=yes)
        return await keys.revoke(key_id)  # otherwise there is none in use

    with _tenant_hint(tenant):
        key = context.run(work, tenant=tenant)
    context.show(key, _as_body, lambda terminal, ended: terminal.line(f"Revoked {ended.id} ({ended.name})."))


@contextmanager
def _tenant_hint(tenant: str | None) -> Iterator[None]:
    """Mention ``--tenant`` if it is omitted and the key is not found."""
    try:
        yield
    except NotFoundError as exc:
        if tenant is not None:
            raise
        raise NotFoundError(f"{exc.message} If the key is of another tenant, name it with --tenant.") from exc


def _as_body(key: ApiKey) -> object:
    from vectorforge.api.admin.keys import KeyBody

    return KeyBody.of(key)


def _as_new_body(made: NewApiKey) -> object:
    from vectorforge.api.admin.keys import NewKeyBody

    return NewKeyBody.of_new(made)


def _print_list(terminal: Terminal, keys: Sequence[ApiKey]) -> None:
    rows = [
        (key.id, key.name, key.scope.value, _day(key.created_at), _ends(key), key.last_used_on or "never")
        for key in keys
    ]
    terminal.table(["Id", "Name", "Scope", "Created", "Ends", "Last used"], rows)


def _print_new(terminal: Terminal, made: NewApiKey) -> None:
    terminal.note(
        f"{made.key.name}: scope {made.key.scope.value}, expires: {_ends(made.key)}. It is shown only once."
    )
    terminal.line(made.secret, wrapped=False)


def _ends(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    return "never" if key.expires_at is None else f"{key.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _day(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d}"
