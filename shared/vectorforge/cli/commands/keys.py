"""``vectorforge keys``."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.options import LimitOption, OffsetOption, YesOption, confirm
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.types import Scope

if TYPE_CHECKING:  # loaded when there is one to print
    from vectorforge.api.admin.keys import KeyBody
    from vectorforge.db.repositories.api_key_repo import ApiKey, NewApiKey

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Make, list, rotate and revoke API keys.\n\n"
    "A key belongs to one tenant and has one scope: [bold]read[/bold] (ask, search), [bold]write[/bold] "
    "(also add, change and delete documents) or [bold]admin[/bold] (also keys, logs and costs). Only its "
    "SHA-256 is stored, so it is shown once. Clients send [cyan]Authorization: Bearer <key>[/cyan].",
)

TenantOption = Annotated[
    str | None,
    typer.Option(
        "--tenant", "-t", help="Whose key.", metavar="TENANT", show_default="VECTORFORGE_LOCAL_TENANT"
    ),
]
KeyIdArgument = Annotated[
    str, typer.Argument(help="Its id: the 16 hex digits after vf_, as in `keys list`.", metavar="ID")
]


@app.command()
@session_command
def create(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="What it is for; 1 to 100 characters.")],
    scope: Annotated[Scope, typer.Option(help="What it may do.")] = Scope.READ,
    tenant: TenantOption = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=3650, help="Days until it ends.", show_default="it does not end")
    ] = None,
) -> None:
    """Make a key, and show it: the only time it can be seen.

    [bold]Examples[/bold]

        vectorforge keys create "web page" --tenant acme

        vectorforge keys create nightly-import --tenant acme --scope write --days 90

        KEY=$(vectorforge keys create ci --tenant acme --json | jq -r .key)
    """

    async def work(session: Session) -> "NewApiKey":
        lifetime = None if days is None else timedelta(days=days)
        return await session.services.api_keys.create(name, scope, lifetime=lifetime)

    context.show(context.run(work, tenant=tenant), _as_new_body, _print_new)


@app.command("list")
@session_command
def list_keys(
    context: CommandContext,
    tenant: TenantOption = None,
    limit: LimitOption = None,
    offset: OffsetOption = 0,
) -> None:
    """List a tenant's keys, the newest first; those that ended go after 90 days."""

    async def work(session: Session) -> "list[ApiKey]":
        return list(await session.services.api_keys.list(limit=limit, offset=offset))

    context.show(context.run(work, tenant=tenant), _as_list, partial(_print_list, offset))


@app.command()
@session_command
def rotate(
    context: CommandContext,
    key_id: KeyIdArgument,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=720, help="For how long the old key is still good.")
    ] = 24,
    tenant: TenantOption = None,
) -> None:
    """Make a key that takes the place of another; both are good for a while.

    The new key has the name, the scope and the lifetime of the old one. Give it to
    the clients before the old one ends.

    [bold]Example[/bold]

        vectorforge keys rotate 0f3a9c4e5d6b7a81 --tenant acme --overlap-hours 48
    """

    async def work(session: Session) -> "NewApiKey":
        keys = session.services.api_keys
        return await keys.rotate(key_id, overlap=timedelta(hours=overlap_hours))

    context.show(context.run(work, tenant=tenant), _as_new_body, _print_new)


@app.command()
@session_command
def revoke(
    context: CommandContext,
    key_id: KeyIdArgument,
    tenant: TenantOption = None,
    yes: YesOption = False,
) -> None:
    """End a key now, in every server; requests that have begun go on."""
    confirm(f"End the key {key_id} now? Who still uses it is refused.", yes=yes)

    async def work(session: Session) -> "ApiKey":
        return await session.services.api_keys.revoke(key_id)

    context.show(
        context.run(work, tenant=tenant),
        _as_body,
        lambda terminal, ended: terminal.line(f"Ended {ended.id} ({ended.name})."),
    )


def _as_body(key: "ApiKey") -> "KeyBody":
    from vectorforge.api.admin.keys import KeyBody

    return KeyBody.of(key)


def _as_new_body(made: "NewApiKey") -> "KeyBody":
    from vectorforge.api.admin.keys import NewKeyBody

    return NewKeyBody.of_new(made)


def _as_list(found: "Sequence[ApiKey]") -> "dict[str, list[KeyBody]]":
    return {"keys": [*map(_as_body, found)]}


def _print_list(offset: int, terminal: Terminal, found: "Sequence[ApiKey]") -> None:
    if not found and offset:
        terminal.note(f"There are no more than {offset} keys.")
        return
    if not found:
        terminal.note("There are no keys. `vectorforge keys create NAME` makes one.")
        return
    rows = [
        (key.id, key.name, key.scope.value, _day(key.created_at), _ends(key), key.last_used_on or "never")
        for key in found
    ]
    terminal.table(["Id", "Name", "Scope", "Created", "Ends", "Last used"], rows)


def _print_new(terminal: Terminal, made: "NewApiKey") -> None:
    terminal.note(
        f"{made.key.name}: scope {made.key.scope.value}, ends: {_ends(made.key)}. It is shown this once."
    )
    terminal.line(made.secret, wrapped=False)


def _ends(key: "ApiKey") -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    return "never" if key.expires_at is None else f"{key.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _day(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d}"
