"""``vectorforge keys``."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.options import DataDirOption, DebugOption, JsonOption, YesOption
from vectorforge.cli.terminal import Terminal, command
from vectorforge.principal import Scope

if TYPE_CHECKING:  # loaded when there is one to print
    from vectorforge.bootstrap import TenantServices
    from vectorforge.cli.session import Session
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
def create(
    name: Annotated[str, typer.Argument(help="What it is for; 1 to 100 characters.")],
    scope: Annotated[Scope, typer.Option(help="What it may do.")] = Scope.READ,
    tenant: TenantOption = None,
    days: Annotated[
        int | None, typer.Option(min=1, max=3650, help="Days until it ends.", show_default="it does not end")
    ] = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Make a key, and show it: the only time it can be seen.

    [bold]Examples[/bold]

        vectorforge keys create "web page" --tenant acme

        vectorforge keys create nightly-import --tenant acme --scope write --days 90

        KEY=$(vectorforge keys create ci --tenant acme --json | jq -r .key)
    """
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.session import run_in_session

        async def work(session: "Session") -> "NewApiKey":
            lifetime = None if days is None else timedelta(days=days)
            return await _services(session, tenant).api_keys.create(name, scope, lifetime=lifetime)

        _show_new(terminal, run_in_session(terminal, data_dir, work))


@app.command("list")
def list_keys(
    tenant: TenantOption = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """List a tenant's keys, the newest first; those that ended go after 90 days."""
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.session import run_in_session

        async def work(session: "Session") -> "list[ApiKey]":
            return list(await _services(session, tenant).api_keys.list())

        found = run_in_session(terminal, data_dir, work)
        if terminal.json_output:
            from vectorforge.api.schemas.keys import KeyBody

            terminal.json({"keys": [KeyBody.of(key) for key in found]})
        elif found:
            rows = [
                (
                    key.id,
                    key.name,
                    key.scope.value,
                    _day(key.created_at),
                    _ends(key),
                    key.last_used_on or "never",
                )
                for key in found
            ]
            terminal.table(["Id", "Name", "Scope", "Created", "Ends", "Last used"], rows)
        else:
            terminal.note("There are no keys. `vectorforge keys create NAME` makes one.")


@app.command()
def rotate(
    key_id: KeyIdArgument,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=720, help="For how long the old key is still good.")
    ] = 24,
    tenant: TenantOption = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Make a key that takes the place of another; both are good for a while.

    The new key has the name, the scope and the lifetime of the old one. Give it to
    the clients before the old one ends.

    [bold]Example[/bold]

        vectorforge keys rotate 0f3a9c4e5d6b7a81 --tenant acme --overlap-hours 48
    """
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.session import run_in_session

        async def work(session: "Session") -> "NewApiKey":
            keys = _services(session, tenant).api_keys
            return await keys.rotate(key_id, overlap=timedelta(hours=overlap_hours))

        _show_new(terminal, run_in_session(terminal, data_dir, work))


@app.command()
def revoke(
    key_id: KeyIdArgument,
    tenant: TenantOption = None,
    yes: YesOption = False,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """End a key now, in every server; requests that have begun go on."""
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.confirmation import confirm
        from vectorforge.cli.session import run_in_session

        confirm(f"End the key {key_id} now? Who still uses it is refused.", yes=yes)

        async def work(session: "Session") -> "ApiKey":
            return await _services(session, tenant).api_keys.revoke(key_id)

        ended = run_in_session(terminal, data_dir, work)
        if terminal.json_output:
            from vectorforge.api.schemas.keys import KeyBody

            terminal.json(KeyBody.of(ended))
        else:
            terminal.line(f"Ended {ended.id} ({ended.name}).")


def _services(session: "Session", tenant: str | None) -> "TenantServices":
    return session.services if tenant is None else session.application.for_tenant(tenant)


def _show_new(terminal: Terminal, made: "NewApiKey") -> None:
    if terminal.json_output:
        from vectorforge.api.schemas.keys import NewKeyBody

        terminal.json(NewKeyBody.of_new(made))
        return
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
