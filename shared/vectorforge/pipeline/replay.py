"""Replay: rebuild the request of a logged query to its model, and name what has changed since."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import UUID

from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.deadline import Deadline
from vectorforge.errors import InvalidInputError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import Message
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.conversation import without_blank, without_labels
from vectorforge.pipeline.generation import prompt, request_for
from vectorforge.pipeline.presets import find_preset
from vectorforge.pipeline.prompts import without_fence_number
from vectorforge.pipeline.query_log import logged_request
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import HistoryMessage
from vectorforge.pipeline.variants import Variant
from vectorforge.retriever.base import CollectionChoice, RetrievedChunks
from vectorforge.types import RetrievedChunk

ReplayStatus: TypeAlias = Literal["equal", "different", "not_rebuilt"]
ChangeKind: TypeAlias = Literal[
    "chunk_edited", "chunk_deleted", "prompt", "model", "variant", "not_logged", "not_called", "unknown"
]
_MAX_MESSAGES = 1000


@dataclass(frozen=True, slots=True)
class ReplayChange:
    """A difference between the logged query and what is stored or configured today."""

    kind: ChangeKind
    detail: str
    chunk_id: UUID | None = None


@dataclass(slots=True)
class QueryReplay:
    """A logged query's request to its model, rebuilt."""

    query_id: UUID
    status: ReplayStatus = "not_rebuilt"
    """"equal": the hash is the logged one; "not_rebuilt": a part of the request does not exist."""
    logged_sha256: str | None = None
    rebuilt_sha256: str | None = None
    messages: list[Message] | None = None
    """Messages of the request, with zeros for the random number of their fence, which is not logged."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Model and sampling of the request."""
    changes: list[ReplayChange] = field(default_factory=list)

    def note(self, kind: ChangeKind, detail: str, chunk_id: UUID | None = None) -> None:
        """Add a change."""
        self.changes.append(ReplayChange(kind, detail, chunk_id))


@dataclass(eq=False, slots=True)
class QueryReplayer:
    """Rebuilds requests of one tenant's queries."""

    documents: DocumentRepository
    conversations: ConversationRepository
    llm_registry: LLMProviderRegistry
    choose_variant: Callable[[str], Variant | None]

    async def replay(self, log: QueryLog) -> QueryReplay:
        """Rebuild a query's request and compare its hash with the logged one."""
        replay = QueryReplay(log.id)
        request = log.request
        if request is None:
            cause = (
                "the answer came from the cache" if log.cached else "no model was called, or an old version"
            )
            replay.note("not_called", f"The log has no request of this query: {cause}.")
            return replay
        replay.logged_sha256 = request["sha256"]
        replay.settings = {name: request[name] for name in ("model", "temperature", "top_p", "max_tokens")}
        chunks = await self._chunks(log, replay)
        history = await self._history(log, request["history"], replay)
        if not log.query_text or log.query_text.startswith("sha256:"):
            replay.note("not_logged", "The query log of this tenant has no text of this query.")
        run = self._run(log, request, history, replay)
        today = (run.provider and run.provider.name, run.model)
        if today != (log.provider, replay.settings["model"]):
            replay.note("model", f"Today {today[0]} · {today[1]} answers by default.")
        if not any(change.kind in ("chunk_deleted", "not_logged") for change in replay.changes):
            self._rebuild(run, chunks, request, replay)
        return replay

    async def _chunks(self, log: QueryLog, replay: QueryReplay) -> list[RetrievedChunk]:
        found = []
        for chunk_id in log.used_chunk_ids:
            cited = await self.documents.chunk(chunk_id)
            document = cited and await self.documents.find_by_id(cited.chunk.document_id)
            if not cited or not document:
                replay.note(
                    "chunk_deleted", "The chunk no longer exists, so its text cannot be rebuilt.", chunk_id
                )
                continue
            if cited.retired:
                replay.note(
                    "chunk_edited", f"{document.source} has changed; its text then is used.", chunk_id
                )
            found.append(RetrievedChunk(cited.chunk, 0.0, 0.0, document.source, document.title))
        return found

    async def _history(self, log: QueryLog, count: int, replay: QueryReplay) -> Sequence[HistoryMessage]:
        if not count:
            return ()
        earlier = []
        if log.conversation_id is not None:
            stored = await self.conversations.last_messages(log.conversation_id, _MAX_MESSAGES)
            own = [place for place, message in enumerate(stored) if message.query_id == log.id]
            earlier = without_blank(stored[: own[0]]) if own else []
        if len(earlier) < count:
            replay.note("not_logged", "The earlier messages of this query are not stored, or no longer.")
        return [without_labels(HistoryMessage(m.role, m.content)) for m in earlier[-count:]]

    def _run(
        self, log: QueryLog, request: Any, history: Sequence[HistoryMessage], replay: QueryReplay
    ) -> QueryRun:
        variant = None
        try:
            variant = self.choose_variant(log.variant) if log.variant else None
        except InvalidInputError:
            replay.note("variant", f"The variant {log.variant} no longer exists.")
        sampling = {name: request[name] for name in ("temperature", "top_p", "max_tokens")}
        sampling["stop"] = request.get("stop", ())
        for part in ("response_format", "tools"):
            if part in request:
                replay.note("not_logged", f"The request had `{part}`, whose schemas are not logged.")
        config = find_preset(log.preset or "vectorforge").config(variant, history=tuple(history), **sampling)
        run = QueryRun(
            log.query_text,
            CollectionChoice.of(log.collection_id),
            config,
            log.id,
            Deadline.after(1.0),
            buffered=True,
        )
        run.search_text, run.context_limit = log.query_text, request["context_limit"]
        names = self.llm_registry.list_providers()
        name = config.llm_provider or (log.provider if log.provider in names else None)
        if names:
            run.provider = self.llm_registry.get(name) if name else self.llm_registry.get_default()
        run.llm_model = config.llm_model
        return run

    def _rebuild(
        self, run: QueryRun, chunks: list[RetrievedChunk], request: Any, replay: QueryReplay
    ) -> None:
        if run.provider is None:
            return
        run.retrieved = RetrievedChunks(chunks)
        context = run.preset.context_config(run.config, run.context_limit)
        messages = prompt(run, ContextBuilder().build(run.search_text, chunks, context), run.provider)
        rebuilt = logged_request(run, messages, request_for(run, request["model"]))
        replay.rebuilt_sha256 = rebuilt["sha256"]
        replay.messages = [{**m, "content": without_fence_number(m["content"])} for m in messages]
        replay.status = "equal" if replay.rebuilt_sha256 == replay.logged_sha256 else "different"
        if rebuilt["prompt_sha256"] != request["prompt_sha256"]:
            replay.note("prompt", "The prompt has changed, or the request had its own, which is not logged.")
        elif replay.logged_sha256 is None:
            replay.note("not_logged", "The logged text is masked, so the request had no hash to compare.")
        elif replay.status == "different" and not replay.changes:
            replay.note(
                "unknown", "Text that is not logged differs: an instruction, a title or a masked part."
            )
