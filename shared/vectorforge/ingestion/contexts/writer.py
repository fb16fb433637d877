"""Contexts of chunks written by a language model, or taken from the outline of the document."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError
from vectorforge.ingestion.chunk import ChunkingConfig, ContextKind
from vectorforge.ingestion.contexts.prompt import (
    CONTEXT_TOKENS,
    SCHEMA,
    SHARED_MESSAGES,
    ContextCall,
    context_calls,
    read_contexts,
)
from vectorforge.ingestion.drafts import draft_chunks
from vectorforge.ingestion.types import ExtractedDocument
from vectorforge.limits.admission import Admission
from vectorforge.limits.settings import Claim
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import LLMRequestConfig
from vectorforge.tokens import estimate_tokens
from vectorforge.types import ChunkDraft, Collection, DocumentDraft
from vectorforge.vendors.resilience import CircuitBreaker

logger = logging.getLogger(__name__)

EstimateCost = Callable[[str, str, int, int], float | None]
"""US dollars of a provider's model for prompt and completion tokens; None for an unknown price."""

_PARALLEL: Final = 4
"""Documents of a group whose contexts are written at the same time."""
_SPARE_TOKENS: Final = 200
"""Tokens of an answer in addition to the contexts."""


@dataclass(frozen=True, slots=True)
class ContextModel:
    """Language model that writes the contexts of one tenant's chunks."""

    provider: BaseLLMProvider
    model: str
    breaker: CircuitBreaker
    estimate_cost: EstimateCost
    new_admission: Callable[[], Admission]
    """Returns the admission of a further call to the tenant's limits."""
    timeout_s: float = 300.0
    """Time limit of all calls for one document."""


class WrittenContexts(NamedTuple):
    """Drafts of a document with contexts."""

    draft: DocumentDraft
    chunks: Sequence[ChunkDraft]
    """Without the contexts of chunks that are stored already."""
    warnings: tuple[str, ...] = ()


class ContextWriter:
    """Contexts of chunks in one collection; holds those that the model has written for later attempts.

    A call that fails does not fail its document: the chunks get their outline, and the content hash of the
    document differs from that of one with all contexts, so that its next ingestion asks the model again, for
    these chunks only.

    Attributes:
        chunking: For ``draft_document`` and ``draft_chunks``.
        model: The model; None: contexts are outlines, or there are none.

    Args:
        collection: Its chunks have no contexts unless it is ``contextual``.
    """

    def __init__(self, model: ContextModel | None, chunking: ChunkingConfig, collection: Collection) -> None:
        kind = ContextKind.OUTLINE if model is None else ContextKind.MODEL
        self.chunking = replace(chunking, context=kind if collection.contextual else None)
        self.model = model if collection.contextual else None
        self._free = asyncio.Semaphore(_PARALLEL)
        self._written: dict[bytes, str] = {}
        """By content hash; empty: the model left the chunk out."""
        self._failed: dict[bytes, str] = {}
        """Reason by content hash; not tried a second time."""

    async def write(
        self,
        document: ExtractedDocument,
        draft: DocumentDraft,
        chunks: Sequence[ChunkDraft],
        stored: frozenset[bytes],
    ) -> WrittenContexts:
        """Have the model write the contexts of a document's new chunks, all drafted with ``chunking``.

        ``stored`` are the content hashes of chunks that are stored and keep their contexts.
        """
        new = {chunk.content_hash for chunk in chunks} - stored
        if self.model is None or len(chunks) < 2 or not new:
            return WrittenContexts(draft, chunks)
        wanted = frozenset(new - self._written.keys() - self._failed.keys())
        calls = context_calls(document.title, document.text, chunks, wanted)
        async with self._free:
            await self._call_all(self.model, [*calls])
        failed = new & self._failed.keys()
        outlines: Sequence[ChunkDraft] = chunks
        if failed or not all(self._written[content_hash] for content_hash in new):
            outline = replace(self.chunking, context=ContextKind.OUTLINE)
            outlines = await asyncio.to_thread(draft_chunks, document, outline)
        pairs = zip(chunks, outlines, strict=True)
        ready = [
            self._with_context(chunk, other) if chunk.content_hash in new else chunk for chunk, other in pairs
        ]
        if not failed:
            return WrittenContexts(draft, ready)
        reason = next(self._failed[content_hash] for content_hash in failed)
        incomplete = hashlib.sha256(draft.content_hash + b"without contexts").digest()
        warning = (
            f"{len(failed)} of {len(chunks)} chunks got no context from the model ({reason}), but the first "
            "sentences of document and section; ingest the document again to retry."
        )
        return WrittenContexts(replace(draft, content_hash=incomplete), ready, (warning,))

    def _with_context(self, chunk: ChunkDraft, outline: ChunkDraft) -> ChunkDraft:
        if chunk.content_hash in self._failed:
            return outline  # with a hash of its own
        return replace(chunk, index_context=self._written[chunk.content_hash] or outline.index_context)

    async def _call_all(self, model: ContextModel, calls: Sequence[ContextCall]) -> None:
        """Make the calls one after the other, so that each finds the document in the vendor's cache."""
        deadline, reason = Deadline.after(model.timeout_s), ""
        for call in calls:
            hashes = [chunk.content_hash for chunk in call.chunks]
            found: dict[bytes, str] = {}
            if not reason:
                try:
                    found = read_contexts(await _answer(model, call, deadline), call.chunks)
                except VectorForgeError as exc:
                    reason = exc.message.rstrip(".")
                    logger.warning("A model failed to write contexts: %s", reason)
            if found:
                self._written.update(dict.fromkeys(hashes, "") | found)
            else:
                self._failed.update(dict.fromkeys(hashes, reason or "its answer has none"))


async def _answer(model: ContextModel, call: ContextCall, deadline: Deadline) -> str:
    """Call the model, within the tenant's limits."""
    name, most = model.provider.name, answer_tokens(call)
    prompt_tokens = await asyncio.to_thread(prompt_size, call, model.model)
    config = LLMRequestConfig(
        model.model,
        temperature=0.0,
        max_tokens=most,
        response_schema=SCHEMA,
        shared_messages=SHARED_MESSAGES,
    )
    cost_usd = model.estimate_cost(name, model.model, prompt_tokens, most)
    claim = Claim(requests=0, tokens=prompt_tokens + most, cost_usd=cost_usd or 0.0, field="documents")
    admission = model.new_admission()
    await admission.admit(lambda: claim)
    try:
        with model.breaker.call():
            answer = await model.provider.generate(call.messages, config, deadline=deadline)
        spent = model.estimate_cost(name, model.model, answer.prompt_tokens, answer.completion_tokens)
        admission.settling(answer.total_tokens, spent)
    finally:
        await admission.end()
    return answer.content


def prompt_size(call: ContextCall, model: str) -> int:
    """Return the tokens of a call's prompt."""
    return sum(estimate_tokens(message["content"], model) for message in call.messages)


def answer_tokens(call: ContextCall) -> int:
    """Return the longest answer to a call in tokens."""
    return 2 * CONTEXT_TOKENS * len(call.chunks) + _SPARE_TOKENS
