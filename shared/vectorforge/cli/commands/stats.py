"""``vectorforge stats``."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.db.repositories.paging import QueryFilter
from vectorforge.db.repositories.statistics_repo import Activity, Percentiles, Statistics

_STAGES = {
    "retrieval": "search",
    "context": "prompt",
    "generation": "answer",
    "first_token": "to first word",
    "total": "total",
}


@session_command
def stats(
    context: CommandContext,
    days: Annotated[int, typer.Option(min=1, max=400, help="Number of days up to now.")] = 7,
    collection: Annotated[
        str | None,
        typer.Option(
            "--collection", "-c", help="Name or id of one collection.", show_default="all", metavar="NAME"
        ),
    ] = None,
) -> None:
    """Show query counts, latency, tokens and cost per UTC day.

    [bold]Examples[/bold]

        vectorforge stats --days 30

        vectorforge stats -c handbook --json | jq .totals.cost_usd
    """
    until = datetime.now(UTC)
    first_day = (until - timedelta(days=days - 1)).replace(hour=0, minute=0, second=0, microsecond=0)

    async def work(session: Session) -> Statistics:
        chosen = None if collection is None else (await session.collection(collection)).id
        requested = QueryFilter(since=first_day, until=until, collection_id=chosen)
        return await session.services.statistics.collect(requested, "day")

    context.show(context.run(work), _as_body, _print)


def _as_body(statistics: Statistics) -> object:
    from vectorforge.api.native.statistics import StatisticsBody

    return StatisticsBody.model_validate(statistics)


def _print(terminal: Terminal, statistics: Statistics) -> None:
    terminal.table(["Number", "Value#"], _totals(statistics), title="Totals")
    if not statistics.totals.queries:
        terminal.note("No queries in this period.")
        return
    latency = [(shown, *_times(statistics.totals.latency_ms.get(stage))) for stage, shown in _STAGES.items()]
    times = ["p50#", "p95#", "p99#"]
    terminal.line()
    terminal.table(["Stage", *times], latency, title="Latency percentiles")
    columns = ["Questions#", "Failed#", *times, "Tokens#", "Cost#", "Up#", "Down#"]
    by_day = [(interval.start.date(), *_row(interval)) for interval in statistics.series]
    terminal.line()
    terminal.table(["Day", *columns], by_day, title="Days")
    models = [
        (f"{entry.provider} {entry.model}" if entry.model else "none", *_row(entry))
        for entry in statistics.models
    ]
    terminal.line()
    terminal.table(["Model", *columns], models, title="Models")
    variants = [(entry.variant, *_row(entry)) for entry in statistics.variants if entry.variant]
    if variants:
        terminal.line()
        terminal.table(["Variant", *columns], variants, title="Variants")
    if statistics.totals.unpriced:
        terminal.note(f"{statistics.totals.unpriced} queries used a model without a known price.")


def _totals(statistics: Statistics) -> list[tuple[str, object]]:
    totals = statistics.totals
    return [
        ("questions", totals.queries),
        *((f"  {outcome}", count) for outcome, count in totals.outcomes.items()),
        ("from the cache", totals.cached),
        ("degraded", totals.degraded),
        ("low quality", totals.low_quality),
        ("rated up", totals.rated_up),
        ("rated down", totals.rated_down),
        ("tokens read", totals.prompt_tokens),
        ("tokens written", totals.completion_tokens),
        ("cost in US dollars", _dollars(totals.cost_usd)),
        ("documents", statistics.content.documents),
        ("passages", statistics.content.chunks),
    ]


def _row(activity: Activity) -> tuple[object, ...]:
    return (
        activity.queries,
        activity.outcomes.get("error", 0),
        *_times(activity.latency_ms.get("total")),
        activity.prompt_tokens + activity.completion_tokens,
        _dollars(activity.cost_usd),
        activity.rated_up,
        activity.rated_down,
    )


def _times(measured: Percentiles | None) -> tuple[str, str, str]:
    if measured is None:
        return "", "", ""
    p50, p95, p99 = (
        f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.1f} s"
        for value in (measured.p50, measured.p95, measured.p99)
    )
    return p50, p95, p99


def _dollars(cost: float) -> str:
    return f"{cost:.4f}" if cost < 1 else f"{cost:.2f}"
