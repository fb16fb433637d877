"""``vectorforge search``."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.ingest.files import shown_source
from vectorforge.cli.options import (
    CollectionOption,
    FilterOption,
    ModeOption,
    ProfileOption,
    TopKOption,
    parse_filter,
    read_question,
)
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.api.native.search import SearchResponse
    from vectorforge.types import SearchMode

_SNIPPET_CHARS = 200


@session_command
def search(
    context: CommandContext,
    question: Annotated[str, typer.Argument(help="What to look for; [bold]-[/bold] reads it from stdin.")],
    collection: CollectionOption = None,
    profile: ProfileOption = None,
    top_k: TopKOption = 10,
    mode: ModeOption = None,
    min_score: Annotated[
        float | None,
        typer.Option(help="Leave out passages that score less (cosine: -1 to 1).", show_default=False),
    ] = None,
    where: FilterOption = None,
) -> None:
    """Find the passages that answer a question best, best first. Asks no model.

    [bold]Examples[/bold]

        vectorforge search "how are tenants kept apart"

        vectorforge search refunds -c handbook -k 3 --json | jq '.results[].source'
    """
    text, filters = read_question(question), parse_filter(where)

    async def work(session: Session) -> "SearchResponse":
        return await _search(session, collection, profile, text, top_k, filters, min_score, mode)

    response = context.run(work)
    _print(context.terminal, response)
    if not response.results:
        raise typer.Exit(ExitCode.INCOMPLETE)


async def _search(
    session: Session,
    collection: str | None,
    profile_id: int | None,
    text: str,
    top_k: int,
    filters: dict[str, Any] | None,
    min_score: float | None,
    mode: "SearchMode | None",
) -> "SearchResponse":
    from vectorforge.api.native.search import SearchResponse

    target = await session.collection(collection, profile_id=profile_id)
    started = time.perf_counter()
    found = await session.services.retriever.retrieve(
        text, target.id, top_k, filters, min_score, profile_id=profile_id, search_mode=mode
    )
    return SearchResponse.of(text, target.id, found, round((time.perf_counter() - started) * 1000, 2))


def _print(terminal: Terminal, response: "SearchResponse") -> None:
    if terminal.json_output:
        terminal.json(response)
    elif response.results:
        rows = [
            (
                n,
                f"{hit.score if hit.relevance is None else hit.relevance:.3f}",
                shown_source(hit.source),
                hit.heading or hit.title or "",
                _snippet(hit.text),
            )
            for n, hit in enumerate(response.results, start=1)
        ]
        if terminal.interactive:  # one column less leaves room for the passage
            narrow = [(n, score, f"{source}\n{heading}", text) for n, score, source, heading, text in rows]
            terminal.table(["Rank#", "Score#", "Source", "Passage"], narrow)
        else:
            terminal.table(["Rank#", "Score#", "Source", "Heading", "Passage"], rows)
        terminal.note(f"{len(rows)} passages in {response.latency_ms:.0f} ms")
    else:
        terminal.note("Nothing found.")


def _snippet(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SNIPPET_CHARS else flat[: _SNIPPET_CHARS - 1] + "…"
