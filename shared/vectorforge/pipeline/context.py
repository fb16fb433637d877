"""Step 3 of a query: build the prompt's context from the chunks, within a token budget."""

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vectorforge.llm.types import GroundingSource
from vectorforge.pipeline.citations.labels import neutralise_labels, neutralise_source_labels
from vectorforge.pipeline.prompts import DEFAULT_SYSTEM_PROMPT, fence, fill_template, render_template
from vectorforge.pipeline.types import SourceCitation
from vectorforge.tokens import estimate_tokens
from vectorforge.types import RetrievedChunk

logger = logging.getLogger(__name__)

_SNIPPET_CHARS = 200
_MARGIN = 1.25
"""Ratio of the tokens of a model's encoding to those of the encoding at ingestion, GPT-4's; at most."""
_MOST_TOKEN_BYTES = 6
"""Bytes of UTF-8 of a token, at most: with more, the chunk's count is an estimate by characters."""
_TOKEN_BYTES = 4
"""Bytes of a token of the text around chunks."""
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*(?=\s)|\n")


@dataclass(frozen=True, slots=True)
class ContextFormat:
    """Format of a chunk in the prompt."""

    label: str = "[Source {number}]"
    """Name of the chunk, which a citation in the answer repeats."""
    after_text: str = ""
    heading: str = ""
    """Text before the first chunk, also without any chunk."""

    def label_of(self, number: int) -> str:
        """Return the label of the chunk with this number, from 1."""
        return self.label.replace("{number}", str(number))

    def write(self, number: int, chunk: RetrievedChunk, *, include_score: bool) -> str:
        """Return the chunk under its label; labels within its text are neutralized."""
        relevance = f" (relevance: {chunk.score:.2f})" if include_score else ""
        text = neutralise_labels(chunk.chunk.text)
        return f"{self.label_of(number)}{relevance}\n{text}{self.after_text}"


@dataclass(frozen=True, slots=True)
class SourceFormat(ContextFormat):
    """Chunks named by their source instead of a number."""

    def write(self, number: int, chunk: RetrievedChunk, *, include_score: bool) -> str:
        """Return the chunk under its source and title."""
        title = neutralise_source_labels(f" - {chunk.document_title}") if chunk.document_title else ""
        relevance = f" (relevance: {chunk.score:.2f})" if include_score else ""
        name = " ".join(f"{chunk.document_source}{title}".splitlines())
        text = neutralise_source_labels(chunk.chunk.text)
        return f"\nSource: {name}{relevance}\nContent: {text}{self.after_text}"


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """Settings of a context."""

    system_prompt_template: str = DEFAULT_SYSTEM_PROMPT
    max_context_tokens: int | None = 4096
    """Largest number of tokens; None or 0 for no limit."""
    max_context_chars: int | None = None
    """Largest number of characters, in place of tokens."""
    include_sources: bool = True
    chunk_separator: str = "\n---\n"
    include_scores: bool = False
    format: ContextFormat = field(default_factory=ContextFormat)
    model: str = "gpt-4"
    """Model of the token counts."""
    exchanges: Sequence[str] = ()
    """Earlier queries with their answers, oldest first, above the chunks. Beyond the budget they are dropped
    before chunks, oldest first."""
    user_template: str | None = None
    """User message with ``{context}`` and ``{query}``, for a system prompt without context; None: the system
    prompt has the context, and the user message is the query."""

    def size_of(self, context: str) -> int:
        """Return the size that the budget limits."""
        return len(context) if self.max_context_chars else estimate_tokens(context, self.model)


@dataclass(frozen=True, slots=True)
class ContextPayload:
    """Prompt and its parts."""

    system_prompt: str
    user_message: str
    assembled_context: str
    sources: list[SourceCitation]
    """In the order of the labels; empty if ``include_sources`` is false."""
    model: str = "gpt-4"
    """Model of the token counts."""
    counted_tokens: int = 0
    """Tokens of the context; not counted again, but from the chunks' own counts, if it surely fits."""
    used: list[RetrievedChunk] = field(default_factory=list)
    """Chunks in the context, best first: a prefix of those given; a single one may be cut."""
    chunks_truncated: int = 0
    """Chunks dropped for the budget."""
    exchanges_truncated: int = 0
    """Exchanges dropped for the budget."""

    @property
    def context_token_count(self) -> int:
        """Tokens of the context, counted now."""
        return estimate_tokens(self.assembled_context, self.model)

    @property
    def token_count(self) -> int:
        """Alias of ``context_token_count``."""
        return self.context_token_count

    @property
    def chunks_used(self) -> int:
        """Number of chunks in the context."""
        return len(self.used)

    def grounding(self, label_format: ContextFormat, *, with_headings: bool = False) -> list[GroundingSource]:
        """Return the chunks of the prompt as data, with the heading paths within them for a quoted answer."""
        return [
            GroundingSource(
                number=number,
                label=label_format.label_of(number),
                text=chunk.chunk.text,
                score=chunk.score,
                title=chunk.document_title,
                relevance=chunk.relevance,
                heading=chunk.chunk.heading,
                headings=_heading_paths(chunk) if with_headings else (),
            )
            for number, chunk in enumerate(self.used, start=1)
        ]


class ContextBuilder:
    """Assembles chunks into a prompt, best first, and drops the worst beyond the budget."""

    def __init__(
        self, default_system_prompt: str = DEFAULT_SYSTEM_PROMPT, max_context_tokens: int = 4096
    ) -> None:
        self._default_system_prompt = default_system_prompt
        self._max_context_tokens = max_context_tokens

    def build(
        self, query: str, chunks: Sequence[RetrievedChunk], config: ContextConfig | None = None
    ) -> ContextPayload:
        """Build the prompt.

        Args:
            query: User message.
            chunks: Best first.
            config: None for the builder's defaults.

        Returns:
            A payload with a fenced context (``prompts.fence``) of at most ``max_context_tokens`` tokens by
            ``estimate_tokens``, or with a margin by the chunks' own counts, and at least (the start of) the
            best chunk. The fence is not counted.

        Raises:
            InvalidInputError: The template has no ``{context}``.
        """
        config = config or ContextConfig(
            system_prompt_template=self._default_system_prompt, max_context_tokens=self._max_context_tokens
        )
        fitted = config
        if config.exchanges:
            fitted = replace(config, exchanges=self._fit_exchanges(chunks, config))
        used, context, token_count = self._fit(chunks, fitted)
        system_prompt, user_message = config.system_prompt_template, query
        if config.user_template is None:
            system_prompt = self._build_system_prompt(system_prompt, fence(context))
        else:
            user_message = fill_template(config.user_template, context=fence(context), query=query)
        return ContextPayload(
            system_prompt=system_prompt,
            user_message=user_message,
            assembled_context=context,
            sources=self._format_sources(used) if config.include_sources else [],
            model=config.model,
            counted_tokens=token_count,
            used=used,
            chunks_truncated=len(chunks) - len(used),
            exchanges_truncated=len(config.exchanges) - len(fitted.exchanges),
        )

    async def abuild(
        self, query: str, chunks: Sequence[RetrievedChunk], config: ContextConfig | None = None
    ) -> ContextPayload:
        """Asynchronous form of ``build``."""
        return self.build(query, chunks, config)

    def _fit_exchanges(self, chunks: Sequence[RetrievedChunk], config: ContextConfig) -> Sequence[str]:
        """Return the latest exchanges that fit in addition to all chunks."""
        latest, budget = list(config.exchanges), config.max_context_tokens
        while latest and budget:
            context = self._format_chunks(chunks, replace(config, exchanges=latest))
            if estimate_tokens(context, config.model) <= budget:
                break
            del latest[0]
        return latest

    def _fit(
        self, chunks: Sequence[RetrievedChunk], config: ContextConfig
    ) -> tuple[list[RetrievedChunk], str, int]:
        used, budget = list(chunks), config.max_context_chars or config.max_context_tokens
        context = self._format_chunks(used, config)
        if not config.max_context_chars and (tokens := _tokens_of_fitting(used, context, budget)) is not None:
            return used, context, tokens
        size = original_size = config.size_of(context)
        if budget and original_size > budget:
            ends = self._ends_of(used, context, config)
            context = self._truncate_context(context, budget, ends=ends, size_of=config.size_of)
            used = used[: bisect_right(ends, len(context))] if context else []
            if not used:
                used = [self._cut(chunks[0], budget, config)]
                context = self._format_chunks(used, config)
            unit, size = "characters" if config.max_context_chars else "tokens", config.size_of(context)
            logger.warning(f"Context truncated from {original_size} to {size} {unit}")  # exact text: A-048
        return used, context, estimate_tokens(context, config.model) if config.max_context_chars else size

    def _ends_of(self, chunks: Sequence[RetrievedChunk], context: str, config: ContextConfig) -> list[int]:
        """Return the end of each chunk in the context of all, ascending."""
        passages = [
            len(config.format.write(number, chunk, include_score=config.include_scores))
            for number, chunk in enumerate(chunks, start=1)
        ]
        ends = [len(context)]
        for length in passages[:0:-1]:
            ends.append(ends[-1] - length - len(config.chunk_separator))
        return ends[::-1]

    def _truncate_context(
        self,
        context: str,
        max_tokens: int,
        *,
        ends: Sequence[int] | None = None,
        size_of: Callable[[str], int] = estimate_tokens,
    ) -> str:
        """Return the longest start of a context that fits into a budget; empty if none fits.

        Args:
            context: Best chunk first.
            max_tokens: Budget by ``size_of``, at least 1.
            ends: Offsets at which it may be cut, ascending; None for the ends of sentences.
            size_of: Measures a text.
        """
        if size_of(context) <= max_tokens:
            return context
        if ends is None:
            ends = [match.end() for match in _SENTENCE_END.finditer(context)]
        # The count grows with the length, so the longest fitting start can be bisected.
        fitting = bisect_right(ends, max_tokens, key=lambda end: size_of(context[:end]))
        return context[: ends[fitting - 1]] if fitting else ""

    def _cut(self, chunk: RetrievedChunk, budget: int, config: ContextConfig) -> RetrievedChunk:
        """Return the start of a chunk that exceeds the budget alone, if possible up to a sentence end."""

        def shortened(length: int) -> RetrievedChunk:
            part = replace(
                chunk.chunk, text=chunk.chunk.text[:length], end_offset=chunk.chunk.start_offset + length
            )
            return replace(chunk, chunk=part)

        def count(length: int) -> int:
            return config.size_of(self._format_chunks([shortened(length)], config))

        length = bisect_right(range(1, len(chunk.chunk.text) + 1), budget, key=count)
        sentence_ends = [m.end() for m in _SENTENCE_END.finditer(chunk.chunk.text, 0, length)]
        return shortened(sentence_ends[-1] if sentence_ends else length)

    def _format_chunks(self, chunks: Sequence[RetrievedChunk], config: ContextConfig | None = None) -> str:
        config = config or ContextConfig()
        passages = [
            config.format.write(number, chunk, include_score=config.include_scores)
            for number, chunk in enumerate(chunks, start=1)
        ]
        heading = [config.format.heading] if config.format.heading else []
        return config.chunk_separator.join([*config.exchanges, *heading, *passages])

    def _build_system_prompt(self, template: str, context: str) -> str:
        return render_template(template, context)

    def _format_sources(self, chunks: Sequence[RetrievedChunk]) -> list[SourceCitation]:
        return [cite(chunk) for chunk in chunks]


def _tokens_of_fitting(chunks: Sequence[RetrievedChunk], context: str, budget: int | None) -> int | None:
    """Return the tokens by the chunks' own counts; None if these are unknown, or the context may not fit.

    Counting the context takes a tenth of the CPU time of a query with ten chunks.
    """
    tokens, rest = 0, len(context.encode(errors="replace"))
    for chunk in (retrieved.chunk for retrieved in chunks):
        size = len(chunk.text.encode(errors="replace"))
        if chunk.token_count * _MOST_TOKEN_BYTES < size:
            return None
        tokens, rest = tokens + chunk.token_count, rest - size
    tokens += max(rest, 0) // _TOKEN_BYTES
    return tokens if not budget or tokens * _MARGIN + max(rest, 0) <= budget else None


def _heading_paths(chunk: RetrievedChunk) -> list[tuple[int, str]]:
    return [
        (location.get("offsets", [0])[0], location["heading"])
        for location in chunk.chunk.locations
        if "heading" in location
    ]


def cite(chunk: RetrievedChunk) -> SourceCitation:
    """Return the citation of a chunk."""
    text = chunk.chunk.text
    return SourceCitation(
        document_source=chunk.document_source,
        chunk_index=chunk.chunk.index,
        score=chunk.score,
        snippet=text[:_SNIPPET_CHARS] + "...",
        truncated=len(text) > _SNIPPET_CHARS,
        chunk_id=chunk.chunk.id,
        document_id=chunk.chunk.document_id,
        title=chunk.document_title,
        heading=chunk.chunk.heading,
        start_offset=chunk.chunk.start_offset,
        end_offset=chunk.chunk.end_offset,
        text=text,
        relevance=chunk.relevance,
        locations=chunk.chunk.locations,
    )
