"""What the user asks, as typed or piped.

``vectorforge ask``.
"""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import typer

from vectorforge.cli.exit_codes import ExitCode
from vectorforge.cli.ingest.files import shown_source
from vectorforge.cli.options import (
    CollectionOption,
    DataDirOption,
    DebugOption,
    FilterOption,
    JsonOption,
    ModeOption,
    ProfileOption,
)
from vectorforge.cli.terminal import Terminal, command
from vectorforge.errors import InvalidInputError, VectorForgeError

if TYPE_CHECKING:
    from vectorforge.pipeline.types import MetaEvent, QueryEvent, QueryResult


_MAX_STDIN_CHARS = 1_000_000


def read_question(argument: str) -> str:
    """The question; ``-`` reads it from stdin.

    Raises:
        InvalidInputError: There is none, or stdin holds more than a million characters.
    """
    if argument != "-":
        text = argument
    else:
        text = sys.stdin.read(_MAX_STDIN_CHARS + 1)
        if len(text) > _MAX_STDIN_CHARS:
            raise InvalidInputError(
                f"QUESTION on stdin is longer than {_MAX_STDIN_CHARS:,} characters.", field="QUESTION"
            )
    if not text.strip():
        raise InvalidInputError("QUESTION is empty.", field="QUESTION")
    return text.strip()


def conversation_id(text: str | None) -> UUID | Literal["new"] | None:
    """The conversation that ``--conversation`` names; "new" for one to be begun.

    Raises:
        InvalidInputError: It is neither an id nor "new".
    """
    if text is None or text == "new":
        return "new" if text else None
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInputError(
            f"--conversation must be an id or new, not {text[:100]!r}.", field="--conversation"
        ) from None


def parse_filter(text: str | None) -> dict[str, Any] | None:
    """The metadata filter, as the HTTP API takes it.

    Raises:
        InvalidInputError: The text is no JSON object.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInputError('--filter must be a JSON object, e.g. \'{"lang": "en"}\'.', field="--filter")
    return value


def parse_metadata(pairs: list[str]) -> dict[str, str]:
    """``key=value`` pairs as metadata; the values stay text.

    Raises:
        InvalidInputError: A pair has no key or no "=".
    """
    metadata = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not (key.strip() and separator):
            raise InvalidInputError(f"--metadata must look like key=value, not {pair!r}.", field="--metadata")
        metadata[key.strip()] = value
    return metadata


def ask(
    question: Annotated[str, typer.Argument(help="The question; [bold]-[/bold] reads it from stdin.")],
    collection: CollectionOption = None,
    profile: ProfileOption = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--top-k", "-k", min=1, help="Passages to retrieve at most.", show_default="10, or the variant's"
        ),
    ] = None,
    where: FilterOption = None,
    provider: Annotated[
        str | None,
        typer.Option(help="Who answers: openai, anthropic, extractive ...", show_default="first with a key"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model of that provider.", show_default="the provider's")
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="Named set of settings: default, precise, comprehensive or one of VECTORFORGE_VARIANTS.",
            show_default="as VECTORFORGE_VARIANT_SPLIT says",
        ),
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option(
            help="Id of a stored conversation that the question goes on with; [bold]new[/bold] begins one.",
            show_default="none",
        ),
    ] = None,
    rewrite: Annotated[
        bool,
        typer.Option(
            "--rewrite", help="Let the model first make a follow-up question one that stands alone."
        ),
    ] = False,
    stream: Annotated[bool, typer.Option(help="Print the answer while it is being written.")] = True,
    mode: ModeOption = None,
    json_output: JsonOption = False,
    data_dir: DataDirOption = None,
    debug: DebugOption = False,
) -> None:
    """Answer a question from your documents, with the sources it rests on.

    Without an API key the answer is quoted from the documents, and says so.

    [bold]Examples[/bold]

        vectorforge ask "What happens to a query when the database is down?"

        vectorforge ask "Who approves refunds?" -c handbook --provider anthropic

        echo "What is RLS?" | vectorforge ask - --json | jq -r .answer

        vectorforge ask "Who approves refunds?" --conversation new
    """
    with command(json_output=json_output, debug=debug) as terminal:
        from vectorforge.cli.session import Session, run_in_session
        from vectorforge.pipeline.presets import PROFILE, VECTORFORGE
        from vectorforge.pipeline.types import MetaEvent, QueryResult

        text = read_question(question)
        named = conversation_id(conversation)
        given = {
            "top_k": top_k,
            "llm_provider": provider,
            "llm_model": model,
            "profile_id": profile,
            "search_mode": mode,
            "filters": parse_filter(where),
        }
        explicit = {name: value for name, value in given.items() if value is not None}

        async def work(session: Session) -> tuple[MetaEvent, QueryResult]:
            target = await session.collection(collection, profile_id=profile)
            asked = (await session.services.conversations.create()).id if named == "new" else named
            chosen = session.services.choose_variant(variant, asked)
            preset = VECTORFORGE if profile is None else PROFILE
            config = preset.config(chosen, stream=stream, conversation_id=asked, rewrite=rewrite, **explicit)
            events = session.services.query_service.query_events(text, target.id, config)
            return await print_answer(terminal, events, stream=stream and not json_output)

        _, result = run_in_session(terminal, data_dir, work)
        if terminal.json_output:
            from vectorforge.api.native.rag import CollectionQueryResponse
            from vectorforge.api.querying import is_extractive

            terminal.json(CollectionQueryResponse.of(result, extractive=is_extractive(result)))
        if result.outcome == "empty":
            raise typer.Exit(ExitCode.INCOMPLETE)


_DEGRADED = {
    "provider": "The model does not answer; this is {model}.",
    "stale": "The model does not answer; this is an earlier answer to the same question.",
    "passages": "The model does not answer; these are the passages found.",
    "lexical": "The question could not be embedded; passages were found by its words only.",
    "ungrounded": "The documents cannot be searched now; the model answers without them.",
    "template": "The model does not answer.",
}


async def print_answer(
    terminal: Terminal, events: "AsyncGenerator[QueryEvent, None]", *, stream: bool
) -> "tuple[MetaEvent, QueryResult]":
    """Print the answer as its events arrive, then its sources; nothing when JSON was asked for.

    Returns:
        What answered, and the whole answer.

    Raises:
        VectorForgeError: What the query failed with.
    """
    from vectorforge.pipeline.types import DegradedEvent, DoneEvent, ErrorEvent, MetaEvent, TokenEvent

    meta: MetaEvent | None = None
    streamed = False
    async with aclosing(events):
        async for event in events:
            if isinstance(event, MetaEvent):
                meta = event
                _introduce(terminal, event)
            elif isinstance(event, DegradedEvent):
                terminal.warn(_DEGRADED[event.step].format(model=event.model))
            elif isinstance(event, TokenEvent) and stream:
                terminal.write(event.text)
                streamed = True
            elif isinstance(event, ErrorEvent):
                if streamed:
                    terminal.line()
                raise event.error
            elif isinstance(event, DoneEvent) and meta is not None:
                if not terminal.json_output:
                    terminal.line("" if streamed else event.result.answer)
                    _print_sources(terminal, event.result)
                return meta, event.result
    raise VectorForgeError("The answer ended without a result.")


def _introduce(terminal: Terminal, meta: "MetaEvent") -> None:
    if meta.query_truncated:
        terminal.warn("The question was too long and has been cut.")
    if meta.extractive:
        terminal.note("No model is configured: the answer is quoted from the documents.")
    elif meta.provider:
        before = ", answered before" if meta.cached else ""
        terminal.note(f"{meta.provider} · {meta.model}{before}")
    if meta.variant:
        terminal.note(f"Variant {meta.variant}")
    if meta.rewritten_query:
        terminal.note(f"Searched for: {meta.rewritten_query}")
    if meta.conversation_id:
        terminal.note(f"Conversation {meta.conversation_id}")


def _print_sources(terminal: Terminal, result: "QueryResult") -> None:
    cited = {citation.source_number for citation in result.citations}
    shown = [(n, source) for n, source in enumerate(result.sources, start=1) if n in cited or not cited]
    if shown:
        terminal.line()
        terminal.line("Sources" if cited else "Passages read, none of them cited", style="bold")
    for number, source in shown:
        name, heading = shown_source(source.document_source), source.heading or source.title
        where = f"{name} › {heading}" if heading else name
        terminal.line(f"  [{number}] {where}  ({source.score:.2f})")
    unsupported = [str(c.source_number) for c in result.citations if c.verdict == "unsupported"]
    if unsupported:
        numbers = ", ".join(dict.fromkeys(unsupported))
        terminal.warn(f"Numbers or names cited from source {numbers} are not in it.")
    if result.invalid_citations:
        terminal.warn(f"{result.invalid_citations} labels in the answer name no source.")
    if result.dropped_parameters:
        names = ", ".join(result.dropped_parameters)
        terminal.warn(f"The model does not take {names}: it was asked without.")
    if result.finish_reason == "length":
        terminal.warn("The answer was cut at its longest allowed length.")
