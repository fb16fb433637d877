"""``vectorforge search``."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from vectorforge.cli.options import (
    CollectionOption,
    FilterOption,
    MmrOption,
    ModeOption,
    ProfileOption,
    TopKOption,
    parse_filter,
    read_question,
    shown_source,
)
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode, Terminal
from vectorforge.types import location_text

if TYPE_CHECKING:  # loaded when the command runs
    from vectorforge.api.native.search import SearchResponse

_SNIPPET_CHARS = 200


@session_command
def search(
    context: CommandContext,
    question: Annotated[str, typer.Argument(help="Query; [bold]-[/bold] reads it from stdin.")],
    collection: CollectionOption = None,
    profile: ProfileOption = None,
    top_k: TopKOption = 10,
    mode: ModeOption = None,
    min_score: Annotated[
        float | None,
        typer.Option(help="Drop chunks with a lower score (cosine: -1 to 1).", show_default=False),
    ] = None,
    where: FilterOption = None,
    mmr_lambda: MmrOption = None,
) -> None:
    """Find the most relevant chunks for a question, best first. Calls no language model.

    [bold]Examples[/bold]

        vectorforge search "how are tenants isolated"

        vectorforge search refunds -c handbook -k 3 --json | jq '.results[].source'
    """
    text, filters = read_question(question), parse_filter(where)

    async def work(session: Session) -> "SearchResponse":
        from vectorforge.api.native.search import SearchResponse

        target = await session.collection(collection, profile_id=profile)
        started = time.perf_counter()
        chunks = await session.services.retriever.retrieve(
            text,
            target.id,
            top_k,
            filters,
            min_score,
            profile_id=profile,
            search_mode=mode,
            mmr_lambda=mmr_lambda,
        )
        latency_ms = round((time.perf_counter() - started) * 1000, 2)
        if chunks.rerank_error:
            context.terminal.warn(f"The chunks were not reranked: {chunks.rerank_error}")
        return SearchResponse.of(chunks, query=text, collection_id=target.id, latency_ms=latency_ms)

    response = context.run(work)
    context.show(response, lambda found: found, _print_results)
    if not response.results:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _print_results(terminal: Terminal, response: "SearchResponse") -> None:
    if response.results:
        rows = [
            (
                n,
                f"{hit.score if hit.relevance is None else hit.relevance:.3f}",
                ", ".join(filter(None, [shown_source(hit.source), location_text(hit.locations)])),
                hit.heading or hit.title or "",
                _snippet(hit.text),
            )
            for n, hit in enumerate(response.results, start=1)
        ]
        if terminal.interactive:  # fewer columns leave room for the chunk
            narrow = [(n, score, f"{source}\n{heading}", text) for n, score, source, heading, text in rows]
            terminal.table(["Rank#", "Score#", "Source", "Passage"], narrow)
        else:
            terminal.table(["Rank#", "Score#", "Source", "Heading", "Passage"], rows)
        terminal.note(f"{len(rows)} passages in {response.latency_ms:.0f} ms")
    else:
        terminal.note("No results.")


def _snippet(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SNIPPET_CHARS else flat[: _SNIPPET_CHARS - 1] + "…"
