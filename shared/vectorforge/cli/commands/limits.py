"""``vectorforge limits``."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, NamedTuple

import typer

from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.errors import InvalidInputError
from vectorforge.limits.settings import Limits, LimitUsage


class _Row(NamedTuple):
    """Row of the table of limits."""

    name: str
    limit: Decimal | int | None
    source: str
    used: Decimal | int


app = typer.Typer(no_args_is_help=True, help="Show and set the limits of tenants.")


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Limits of ``vectorforge limits set``: a number, or "default"."""

    requests_per_minute: Annotated[
        str | None, typer.Option(metavar="N", help="Billable requests in any 60 seconds.")
    ] = None
    tokens_per_day: Annotated[
        str | None, typer.Option(metavar="N", help="Tokens of models and embeddings per UTC day.")
    ] = None
    cost_per_month_usd: Annotated[
        str | None, typer.Option(metavar="USD", help="US dollars for priced models per UTC month.")
    ] = None
    concurrent_streams: Annotated[
        str | None, typer.Option(metavar="N", help="Concurrent streamed answers.")
    ] = None


TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Tenant id, as in credentials.")]


def _limit(name: str, text: str) -> Decimal | int | None:
    """Parse the value of an option; None for the server's default."""
    if text.strip().lower() == "default":
        return None
    with suppress(InvalidOperation, ValueError):
        if name != "cost_per_month_usd":
            return int(text)
        value = Decimal(text)
        if value.is_finite():
            return value.quantize(Decimal("0.01"))
    option = f"--{name.replace('_', '-')}"
    raise InvalidInputError(f"{option} must be a number or 'default'.", field=option)


@app.command()
@session_command
def show(
    context: CommandContext,
    tenant: Annotated[
        str | None,
        typer.Argument(
            metavar="TENANT", help="Tenant id, as in credentials.", show_default="VECTORFORGE_LOCAL_TENANT"
        ),
    ] = None,
) -> None:
    """Show a tenant's limits, the source of each, and the current usage.

    Usage is counted only while the tenant has a limit.

    [bold]Examples[/bold]

        vectorforge limits show

        vectorforge limits show acme
    """
    _show(context, tenant, {})


@app.command("set")
@session_command
def set_limits(
    context: CommandContext, tenant: TenantArgument, options: LimitOptions = LimitOptions()
) -> None:
    """Set limits of a tenant; limits that are not given stay.

    "default" removes the tenant's own limit: then the server's applies, which
    is VECTORFORGE_LIMIT_REQUESTS_PER_MINUTE and so on, or none.
    Running servers apply a change within 10 seconds.

    [bold]Examples[/bold]

        vectorforge limits set acme --requests-per-minute 120 --concurrent-streams 4

        vectorforge limits set acme --tokens-per-day 2000000 --cost-per-month-usd 50

        vectorforge limits set acme --requests-per-minute default
    """
    changes = {name: _limit(name, text) for name, text in asdict(options).items() if text is not None}
    if not changes:
        raise InvalidInputError("Give a limit, such as --requests-per-minute 120.")
    _show(context, tenant, changes)


def _show(context: CommandContext, tenant: str | None, changes: Mapping[str, Any]) -> None:
    """Print the tenant's limits after the changes; None is the local tenant."""

    async def work(session: Session) -> tuple[str, list[_Row]]:
        limits = session.services.limits.own
        own = await limits.own()
        if changes:
            own = replace(own, **changes)
            await limits.change(own)
        rows = _rows(own, session.application.shared.limit_gate.defaults, await limits.usage())
        return tenant or session.config.server.local_tenant, rows

    def as_json(shown: tuple[str, list[_Row]]) -> object:
        limits = [
            {"name": row.name, "limit": _plain(row.limit), "from": row.source, "used": _plain(row.used)}
            for row in shown[1]
        ]
        return {"tenant": shown[0], "limits": limits}

    context.show(context.run(work, tenant=tenant, create=bool(changes)), as_json, _print)


def _rows(own: Limits, server: Limits, used: LimitUsage) -> list[_Row]:
    usage: dict[str, Decimal | int] = {
        "requests_per_minute": used.requests,
        "tokens_per_day": used.tokens,
        "cost_per_month_usd": used.cost_usd,
        "concurrent_streams": used.streams,
    }
    rows = []
    for name, spent in usage.items():
        mine, default = getattr(own, name), getattr(server, name)
        limit = default if mine is None else mine
        source = "none" if limit is None else "server" if mine is None else "tenant"
        rows.append(_Row(name, limit, source, spent))
    return rows


def _print(terminal: Terminal, shown: tuple[str, Sequence[_Row]]) -> None:
    tenant, rows = shown
    terminal.table(
        ["Limit", "Value#", "From", "Used#"],
        [(row.name, "-" if row.limit is None else row.limit, row.source, row.used) for row in rows],
        title=f"Tenant {tenant}",
    )


def _plain(value: Decimal | int | None) -> float | int | None:
    return float(value) if isinstance(value, Decimal) else value
