"""Step 3 of a query: passages become the context of the prompt, within a token budget."""

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vectorforge.pipeline.citations.labels import neutralise_labels
from vectorforge.pipeline.prompts import DEFAULT_SYSTEM_PROMPT, fence, fill_template, render_template
from vectorforge.pipeline.types import SourceCitation
from vectorforge.tokens import estimate_tokens
from vectorforge.types import RetrievedChunk

logger = logging.getLogger(__name__)

_SNIPPET_CHARS = 200
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*(?=\s)|\n")


@dataclass(frozen=True, slots=True)
class ContextFormat:
    """How a passage is written into the prompt."""

    label: str = "[Source {number}]"
    """How it is named; what a citation in the answer repeats."""
    after_text: str = ""
    heading: str = ""
    """Stands before the first passage, and alone when there is none."""

    def label_of(self, number: int) -> str:
        """Label of the passage with this number, from 1."""
        return self.label.replace("{number}", str(number))

    def write(self, number: int, chunk: RetrievedChunk, *, include_score: bool) -> str:
        """The passage under its label, which nothing in the passage itself can be taken for."""
        relevance = f" (relevance: {chunk.score:.2f})" if include_score else ""
        text = neutralise_labels(chunk.chunk.text)
        return f"{self.label_of(number)}{relevance}\n{text}{self.after_text}"


@dataclass(frozen=True, slots=True)
class SourceFormat(ContextFormat):
    """Passages named by where they come from instead of by a number."""

    def write(self, number: int, chunk: RetrievedChunk, *, include_score: bool) -> str:
        """The passage under its source and title."""
        title = f" - {chunk.document_title}" if chunk.document_title else ""
        relevance = f" (relevance: {chunk.score:.2f})" if include_score else ""
        named = f"\nSource: {chunk.document_source}{title}{relevance}"
        return f"{named}\nContent: {neutralise_labels(chunk.chunk.text)}{self.after_text}"


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """How a context is made."""

    system_prompt_template: str = DEFAULT_SYSTEM_PROMPT
    max_context_tokens: int | None = 4096
    """Tokens of the context at most; None or 0 for no limit."""
    max_context_chars: int | None = None
    """Characters at most, in place of a number of tokens."""
    include_sources: bool = True
    chunk_separator: str = "\n---\n"
    include_scores: bool = False
    format: ContextFormat = field(default_factory=ContextFormat)
    model: str = "gpt-4"
    """Whose tokens are counted."""
    exchanges: Sequence[str] = ()
    """Earlier questions with their answers, oldest first, to stand above the passages. Over the budget they
    are the first to go, oldest first."""
    user_template: str | None = None
    """Text with ``{context}`` and ``{query}`` that becomes the user's message, while the system prompt stays
    without context; None: the system prompt holds the context, and the user's message is the question."""

    def size_of(self, context: str) -> int:
        """What the budget counts."""
        return len(context) if self.max_context_chars else estimate_tokens(context, self.model)


@dataclass(frozen=True, slots=True)
class ContextPayload:
    """A prompt, and what went into it."""

    system_prompt: str
    user_message: str
    assembled_context: str
    sources: list[SourceCitation]
    """In the order of the labels; empty when sources were not wanted."""
    context_token_count: int
    used: list[RetrievedChunk] = field(default_factory=list)
    """The passages in the context, best first; a prefix of those given, the only one possibly cut."""
    chunks_truncated: int = 0
    """Passages left out for the budget."""
    exchanges_truncated: int = 0
    """Exchanges left out for the budget."""

    @property
    def token_count(self) -> int:
        """Another name of ``context_token_count``."""
        return self.context_token_count

    @property
    def chunks_used(self) -> int:
        """Number of passages in the context."""
        return len(self.used)


class ContextBuilder:
    """Assembles passages into a prompt, best first, and drops the worst when there are too many."""

    def __init__(
        self, default_system_prompt: str = DEFAULT_SYSTEM_PROMPT, max_context_tokens: int = 4096
    ) -> None:
        self._default_system_prompt = default_system_prompt
        self._max_context_tokens = max_context_tokens

    def build(
        self, query: str, chunks: Sequence[RetrievedChunk], config: ContextConfig | None = None
    ) -> ContextPayload:
        """Make the prompt.

        Args:
            query: Becomes the user's message, unchanged.
            chunks: Best first.
            config: None takes the builder's defaults.

        Returns:
            A payload with the context fenced in (``prompts.fence``); the context holds at most
            ``max_context_tokens`` tokens, as ``estimate_tokens`` counts them, and at least (the start of) the
            best passage. The fence is not counted.

        Raises:
            InvalidInputError: The template has no ``{context}``.
        """
        config = config or ContextConfig(
            system_prompt_template=self._default_system_prompt, max_context_tokens=self._max_context_tokens
        )
        kept = config
        if config.exchanges:
            kept = replace(config, exchanges=self._fit_exchanges(chunks, config))
        used, context, token_count = self._fit(chunks, kept)
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
            context_token_count=token_count,
            used=used,
            chunks_truncated=len(chunks) - len(used),
            exchanges_truncated=len(config.exchanges) - len(kept.exchanges),
        )

    async def abuild(
        self, query: str, chunks: Sequence[RetrievedChunk], config: ContextConfig | None = None
    ) -> ContextPayload:
        """``build``, for callers that await it."""
        return self.build(query, chunks, config)

    def _fit_exchanges(self, chunks: Sequence[RetrievedChunk], config: ContextConfig) -> Sequence[str]:
        """The latest exchanges that fit in beside all passages."""
        kept, budget = list(config.exchanges), config.max_context_tokens
        while kept and budget:
            context = self._format_chunks(chunks, replace(config, exchanges=kept))
            if estimate_tokens(context, config.model) <= budget:
                break
            del kept[0]
        return kept

    def _fit(
        self, chunks: Sequence[RetrievedChunk], config: ContextConfig
    ) -> tuple[list[RetrievedChunk], str, int]:
        used, budget = list(chunks), config.max_context_chars or config.max_context_tokens
        context = self._format_chunks(used, config)
        original_size = config.size_of(context)
        if budget and original_size > budget:
            ends = self._ends_of(used, context, config)
            context = self._truncate_context(context, budget, ends=ends, size_of=config.size_of)
            used = used[: bisect_right(ends, len(context))] if context else []
            if not used:
                used = [self._cut(chunks[0], budget, config)]
                context = self._format_chunks(used, config)
            unit = "characters" if config.max_context_chars else "tokens"
            logger.warning(
                f"Context truncated from {original_size} to {config.size_of(context)} {unit}"
            )  # exact text: A-048
        return used, context, estimate_tokens(context, config.model)

    def _ends_of(self, chunks: Sequence[RetrievedChunk], context: str, config: ContextConfig) -> list[int]:
        """Where each chunk ends in the context of all, ascending."""
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
        """Keep the start of a context that fits into a budget.

        Args:
            context: Best chunk first.
            max_tokens: Most that ``size_of`` may count, 1 or more.
            ends: Offsets at which it may be cut, ascending: the ends of its chunks. None: wherever a sentence
                ends.
            size_of: Counts what the budget is of.

        Returns:
            The longest such start; empty if not even the first fits.
        """
        if size_of(context) <= max_tokens:
            return context
        if ends is None:
            ends = [match.end() for match in _SENTENCE_END.finditer(context)]
        # The count grows with the length, so the longest fitting start can be bisected.
        fitting = bisect_right(ends, max_tokens, key=lambda end: size_of(context[:end]))
        return context[: ends[fitting - 1]] if fitting else ""

    def _cut(self, chunk: RetrievedChunk, budget: int, config: ContextConfig) -> RetrievedChunk:
        """The start of a passage that alone exceeds the budget, ended at a sentence where one ends."""

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


def cite(chunk: RetrievedChunk) -> SourceCitation:
    """The citation of a passage."""
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
    )
