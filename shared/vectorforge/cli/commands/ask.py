"""``vectorforge ask``."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import typer

from vectorforge.cli.options import (
    AnswerTopKOption,
    CollectionOption,
    EffortOption,
    FilterOption,
    IntentOption,
    MmrOption,
    ModeOption,
    ProfileOption,
    conversation_id,
    parse_filter,
    read_question,
    shown_source,
)
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import ExitCode, Terminal
from vectorforge.errors import VectorForgeError
from vectorforge.pipeline.presets import PROFILE, VECTORFORGE
from vectorforge.pipeline.step_types import StepEvent
from vectorforge.pipeline.types import (
    DegradedEvent,
    DoneEvent,
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    QueryResult,
    TokenEvent,
    cited_heading,
    cited_locations,
)
from vectorforge.types import location_text

ProviderOption = Annotated[
    str | None,
    typer.Option(
        help="Answering provider: openai, anthropic, extractive ...", show_default="first with a key"
    ),
]
ModelOption = Annotated[
    str | None, typer.Option(help="Model of that provider.", show_default="the provider's")
]
VariantOption = Annotated[
    str | None,
    typer.Option(
        help="Named set of settings: default, precise, comprehensive or one of VECTORFORGE_VARIANTS.",
        show_default="chosen by VECTORFORGE_VARIANT_SPLIT",
    ),
]
ConversationOption = Annotated[
    str | None,
    typer.Option(
        help="Id of a stored conversation to continue; [bold]new[/bold] starts one.", show_default="none"
    ),
]
RewriteOption = Annotated[
    bool | None,
    typer.Option(
        "--rewrite/--no-rewrite",
        help="Have the model rewrite every follow-up query before the search, or search for it as it is.",
        show_default="only if it does not stand alone",
    ),
]


@session_command
def ask(
    context: CommandContext,
    question: Annotated[str, typer.Argument(help="The question; [bold]-[/bold] reads it from stdin.")],
    collection: CollectionOption = None,
    profile: ProfileOption = None,
    top_k: AnswerTopKOption = None,
    where: FilterOption = None,
    provider: ProviderOption = None,
    model: ModelOption = None,
    variant: VariantOption = None,
    conversation: ConversationOption = None,
    rewrite: RewriteOption = None,
    effort: EffortOption = None,
    intent: IntentOption = None,
    stream: Annotated[bool, typer.Option(help="Print the answer as it is generated.")] = True,
    mode: ModeOption = None,
    mmr_lambda: MmrOption = None,
) -> None:
    """Answer a question from your documents, with citations.

    Without an API key the answer is quoted from the documents, and labeled as such.

    [bold]Examples[/bold]

        vectorforge ask "What happens to a query when the database is down?"

        vectorforge ask "Who approves refunds?" -c handbook --provider anthropic

        echo "What is RLS?" | vectorforge ask - --json | jq -r .answer

        vectorforge ask "Who approves refunds?" --conversation new

        vectorforge ask "Who approves refunds and how long do they take?" --effort low
    """
    text, named = read_question(question), conversation_id(conversation)
    options = {
        "top_k": top_k,
        "llm_provider": provider,
        "llm_model": model,
        "profile_id": profile,
        "search_mode": mode,
        "mmr_lambda": mmr_lambda,
        "rewrite": rewrite,
        "effort": effort,
        "intents": intent or None,
        "filters": parse_filter(where),
    }
    explicit = {name: value for name, value in options.items() if value is not None}

    async def work(session: Session) -> QueryResult:
        services = session.services
        target = await session.collection(collection, profile_id=profile)
        continued = (await services.conversations.create()).id if named == "new" else named
        config = (VECTORFORGE if profile is None else PROFILE).config(
            services.choose_variant(variant, continued),
            stream=stream,
            conversation_id=continued,
            **explicit,
        )
        events = services.query_service.query_events(text, target.id, config)
        return await _print_answer(context.terminal, events, stream=stream)

    result = context.run(work)
    if context.terminal.json_output:
        from vectorforge.api.native.rag import CollectionQueryResponse

        context.terminal.json(CollectionQueryResponse.of(result))
    if result.outcome == "empty":
        raise typer.Exit(ExitCode.INCOMPLETE)


_CHECK = "`vectorforge providers check` shows the reason."
_DEGRADED = {
    "provider": f"The model is unavailable; {{model}} answers instead. {_CHECK}",
    "stale": f"The model is unavailable; showing an earlier answer to the same question. {_CHECK}",
    "passages": f"The model is unavailable; showing the retrieved passages. {_CHECK}",
    "lexical": "The question could not be embedded; passages were found by keyword only.",
    "not_reranked": "The reranker failed; the passages are in the order of the search.",
    "ungrounded": "The documents cannot be searched; the model answers without them.",
    "template": f"The model is unavailable. {_CHECK}",
}


async def _print_answer(
    terminal: Terminal, events: AsyncGenerator[QueryEvent, None], *, stream: bool
) -> QueryResult:
    """Print the answer as its events arrive, then its sources; nothing with ``--json``."""
    streamed = False
    async with aclosing(events):
        async for event in events:
            if isinstance(event, MetaEvent):
                _print_meta(terminal, event)
            elif isinstance(event, StepEvent):
                terminal.note(event.step.summary)
            elif isinstance(event, DegradedEvent):
                terminal.warn(_DEGRADED[event.step].format(model=event.model))
            elif isinstance(event, TokenEvent) and stream and not terminal.json_output:
                terminal.write(event.text)
                streamed = True
            elif isinstance(event, ErrorEvent):
                if streamed:
                    terminal.line()
                raise event.error
            elif isinstance(event, DoneEvent):
                if not terminal.json_output:
                    terminal.line("" if streamed else event.result.answer)
                    _print_sources(terminal, event.result)
                terminal.note(f"Query {event.result.request_id}")
                return event.result
    raise VectorForgeError("The answer ended without a result.")


def _print_meta(terminal: Terminal, meta: MetaEvent) -> None:
    if meta.query_truncated:
        terminal.warn("The question was too long and was truncated.")
    if meta.extractive:
        terminal.note("No model is configured: the answer is quoted from the documents.")
    elif meta.provider:
        cached = ", cached" if meta.cached else ""
        terminal.note(f"{meta.provider} · {meta.model}{cached}")
    if meta.variant:
        terminal.note(f"Variant {meta.variant}")
    if meta.rewritten_query:
        terminal.note(f"Searched for: {meta.rewritten_query}")
    if meta.conversation_id:
        terminal.note(f"Conversation {meta.conversation_id}")


def _print_sources(terminal: Terminal, result: QueryResult) -> None:
    cited = {citation.source_number for citation in result.citations}
    shown = [(n, source) for n, source in enumerate(result.sources, start=1) if n in cited or not cited]
    if shown:
        terminal.line()
        terminal.line("Sources" if cited else "Retrieved passages (none cited)", style="bold")
    for number, source in shown:
        heading = cited_heading(number, source.heading, result.citations) or source.title
        where = " › ".join(filter(None, [shown_source(source.document_source), heading]))
        place = location_text(cited_locations(number, source.locations, result.citations))
        terminal.line(f"  [{number}] {', '.join(filter(None, [where, place]))}  ({source.score:.2f})")
    unsupported = [str(c.source_number) for c in result.citations if c.verdict == "unsupported"]
    if unsupported:
        numbers = ", ".join(dict.fromkeys(unsupported))
        terminal.warn(f"By its words, source {numbers} does not say what cites it.")
    if result.quality and result.quality.uncited_sentences:
        terminal.note(f"Sentences that cite no source: {result.quality.uncited_sentences}.")
    if result.invalid_citations:
        terminal.warn(f"{result.invalid_citations} citations in the answer have no source.")
    if result.dropped_parameters:
        names = ", ".join(result.dropped_parameters)
        terminal.warn(
            f"No model is configured; {names} was ignored."
            if result.llm_response and result.llm_response.metadata.get("extractive")
            else f"The model does not support {names}; the request was sent without."
        )
    if result.finish_reason == "length":
        terminal.warn("The answer reached the maximum length and was truncated.")
