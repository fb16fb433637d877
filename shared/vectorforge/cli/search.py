"""``vectorforge search``."""

from typing import Annotated, Any

import typer

from vectorforge.cli.options import CollectionOption, DataDirOption, DebugOption, JsonOption, TopKOption
from vectorforge.cli.question import read_question
from vectorforge.cli.terminal import Terminal, command

_SNIPPET_CHARS = 200


def search(
    question: Annotated[str, typer.Argument(help="What to look for; [bold]-[/bold] reads it from stdin.")],
    collection: CollectionOption = None,
    top_k: TopKOption = 10,
    min_score: Annotated[
        float | None,
        typer.Option(help="Leave out passages that score less (cosine: -1 to 1).", show_default=False),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--filter",
            help='Metadata filter as JSON, e.g. [cyan]\'{"lang": "en"}\'[/cyan].',
            show_default=False,
        ),
    ] = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Find the passages nearest to a question, best first. Asks no model.

    [bold]Examples[/bold]

        vectorforge search "how are tenants kept apart"

        vectorforge search refunds -c handbook -k 3 --json | jq '.results[].source'
    """
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.question import parse_filter
        from vectorforge.cli.session import Session, run_in_session

        text, filters = read_question(question), parse_filter(where)

        async def work(session: Session) -> dict[str, Any]:
            import time

            target = await session.collection(collection)
            started = time.perf_counter()
            found = await session.services.retriever.retrieve(text, target.id, top_k, filters, min_score)
            latency_ms = round((time.perf_counter() - started) * 1000, 2)
            results = [
                {
                    "chunk_id": hit.chunk.id,
                    "document_id": hit.chunk.document_id,
                    "source": hit.document_source,
                    "title": hit.document_title,
                    "heading": hit.chunk.heading,
                    "index": hit.chunk.index,
                    "text": hit.chunk.text,
                    "score": hit.score,
                    "start_offset": hit.chunk.start_offset,
                    "end_offset": hit.chunk.end_offset,
                    "metadata": hit.chunk.metadata,
                }
                for hit in found
            ]
            return {"query": text, "collection_id": target.id, "results": results, "latency_ms": latency_ms}

        show(terminal, run_in_session(terminal, data_dir, work))


def show(terminal: Terminal, response: dict[str, Any]) -> None:
    """Print what a search found.

    Raises:
        typer.Exit: Nothing was found (code 1).
    """
    from vectorforge.cli.exit_codes import ExitCode

    results = response["results"]
    if terminal.json_output:
        terminal.json(response)
    elif results:
        rows = [
            (n, f"{hit['score']:.3f}", hit["source"], hit["heading"] or hit["title"], _snippet(hit["text"]))
            for n, hit in enumerate(results, start=1)
        ]
        terminal.table(["##", "Score#", "Source", "Heading", "Passage"], rows)
        terminal.note(f"{len(results)} passages in {response['latency_ms']:.0f} ms")
    else:
        terminal.note("Nothing found.")
    if not results:
        raise typer.Exit(ExitCode.INCOMPLETE)


def _snippet(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SNIPPET_CHARS else flat[: _SNIPPET_CHARS - 1] + "…"
