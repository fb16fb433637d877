"""``/v1/chat/completions``: OpenAI's chat completions as queries to a collection, whole and in chunks."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.sse import KEEPALIVE_COMMENT

from vectorforge.api.answers import Usage, numbered_sources
from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.error_schemas import openai_error, openai_problems
from vectorforge.api.openai.chat_schemas import (
    AnswerChoice,
    AnswerMessage,
    ChatCompletion,
    ChatCompletionRequest,
    FinishReason,
    ToolCallMessage,
)
from vectorforge.api.openai.labels import LabelRewriter, rewrite_labels, sources_footer
from vectorforge.api.openai.models import (
    Conversation,
    RefusedOptions,
    RequestedModel,
    answering_collection,
    reject_options,
    url_citations,
)
from vectorforge.api.openai.output_options import check_output
from vectorforge.api.openai.request_schemas import CalledTool, JsonDetails, OwnDetails
from vectorforge.api.problems import problem_of
from vectorforge.api.querying import QueryRoute, SurfaceQuery, check_config
from vectorforge.api.request_state import RequestState
from vectorforge.api.streaming.sse import encode_json, json_event, nameless_events_content
from vectorforge.llm.tools import ToolCallDelta
from vectorforge.pipeline.types import (
    Citation,
    DoneEvent,
    ErrorEvent,
    MetaEvent,
    QueryEvent,
    QueryResult,
    SourcesEvent,
    TokenEvent,
    ToolCallEvent,
    UsageEvent,
)

router = APIRouter(prefix="/v1", tags=["openai"], route_class=QueryRoute)

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The answer: JSON, or with `stream: true` chunks as server-sent events that end with "
        "`data: [DONE]`.",
        "content": nameless_events_content("JSON of a `chat.completion.chunk`, or `[DONE]`."),
    },
    **openai_problems(404, 409, 413, 415, 429, 502, 504),
}


@router.post("/chat/completions", response_model=ChatCompletion, responses=_RESPONSES)
async def create_chat_completion(
    request: Request, body: ChatCompletionRequest, application: ApplicationDep, tenant: Tenant
) -> Response | ChatCompletion:
    """Answer the last message from a collection, with citations as `[n]` and as annotations."""
    reject_options(body, REFUSED)
    requested = RequestedModel.parse(body.model)
    conversation = Conversation.of(body.messages)
    config = requested.preset.config(
        tenant.choose_variant(body.variant, body.conversation_id),
        **body.options(),
        history=conversation.history,
        following=conversation.following,
    )
    check_config(application, config, {"max_tokens": body.limit_field})
    check_output(application, config, requested.preset, format_field="response_format")
    collection = answering_collection(application, requested)
    query = SurfaceQuery(request, conversation.question, collection, config)
    wanted = ChatFormat(
        model=requested.name,
        base_url=str(request.base_url).rstrip("/"),
        append_sources=bool(body.append_sources),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        is_json=config.response_format is not None,
    )
    encoder = ChatChunkEncoder(wanted, request_id=RequestState.of(request.scope).request_id)
    return await query.answer(
        lambda result: chat_completion(result, wanted), stream=body.stream, encoder=encoder
    )


REFUSED: RefusedOptions = {
    "n": (lambda n: n not in (None, 1), "Only n=1 is supported."),
    "functions": (bool, "`functions` is not supported; use `tools`."),
    "function_call": (lambda choice: choice not in (None, "auto", "none"), "Use `tools` and `tool_choice`."),
    "modalities": (lambda kinds: bool(kinds) and kinds != ["text"], "Only text answers are supported."),
    "audio": (bool, "Only text answers are supported."),
    "logprobs": (bool, "`logprobs` is not supported."),
    "top_logprobs": (bool, "`top_logprobs` is not supported."),
    "logit_bias": (bool, "`logit_bias` is not supported."),
    "web_search_options": (bool, "Web search is not supported."),
}


_FINISH_REASONS: Mapping[str, FinishReason] = {
    "length": "length",
    "deadline": "length",  # also incomplete
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
}
_END = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Format of one answer."""

    model: str
    """As requested."""
    base_url: str
    """Base URL of this server without a final slash, for sources without a web address."""
    append_sources: bool = False
    include_usage: bool = False
    is_json: bool = False
    """The text is JSON: nothing in it is rewritten, and its citations are among the details."""


def chat_completion(result: QueryResult, wanted: ChatFormat) -> ChatCompletion:
    """Return a whole answer."""
    chunks = result.retrieved_chunks[: len(result.sources)]
    answer, citations = result.answer, list[Citation]()
    if not wanted.is_json:
        answer, citations = rewrite_labels(answer, result.citations, chunks)
    footer = sources_footer(citations, result.sources) if wanted.append_sources else ""
    content, annotations = answer + footer, url_citations(citations, result.sources, wanted.base_url)
    message: AnswerMessage | ToolCallMessage = AnswerMessage(content=content, annotations=annotations)
    if result.tool_calls:
        calls = [CalledTool.of(call) for call in result.tool_calls]
        message = ToolCallMessage(content=content or None, tool_calls=calls, annotations=annotations)
    return ChatCompletion(
        id=_completion_id(result.request_id),
        created=int(time.time()),
        model=wanted.model,
        choices=[AnswerChoice(message=message, finish_reason=_finish_reason(result))],
        usage=Usage.of(result),
        vectorforge=own_details(result, is_json=wanted.is_json),
    )


class ChatChunkEncoder:
    """Encodes an answer in chunks, which together equal the result of ``chat_completion``.

    The first chunk has the role. The last ones have annotations and ``vectorforge``, the finish reason, and
    the usage if requested. A failure is one event with ``error``; ``[DONE]`` ends both.
    """

    headers: Mapping[str, str] = {}
    ping = KEEPALIVE_COMMENT

    def __init__(self, wanted: ChatFormat, *, request_id: str) -> None:
        self.request_id = request_id
        self._wanted = wanted
        self._created = int(time.time())
        self._id = ""
        self._rewriter = LabelRewriter()
        self._usage: UsageEvent | None = None

    def encode(self, event: QueryEvent) -> bytes:
        """Encode an event as chunks; citations are sent together at the end."""
        match event:
            case MetaEvent():
                self._id = _completion_id(event.request_id)
                return self._delta({"role": "assistant", "content": "", "refusal": None})
            case SourcesEvent():
                chunks = event.retrieved_chunks[: len(event.sources)]
                return self._content(self._rewriter.continue_with(chunks))
            case TokenEvent():
                return self._content(event.text if self._wanted.is_json else self._rewriter.feed(event.text))
            case ToolCallEvent():
                return self._delta({"tool_calls": [_called_piece(event.piece)]})
            case UsageEvent():
                self._usage = event
                return b""
            case DoneEvent():
                return b"".join(self._end(event.result))
            case ErrorEvent():
                return self._failure(event.error)
            case _:
                return b""

    def _end(self, result: QueryResult) -> Iterator[bytes]:
        rest = self._rewriter.finish()
        found = () if self._wanted.is_json else result.citations
        citations = [self._rewriter.locate(citation) for citation in found]
        footer = sources_footer(citations, result.sources) if self._wanted.append_sources else ""
        yield self._content(rest + footer)
        annotations = url_citations(citations, result.sources, self._wanted.base_url)
        delta = {"annotations": [a.model_dump(mode="json") for a in annotations]}
        details = own_details(result, is_json=self._wanted.is_json)
        yield self._delta(delta, vectorforge=details.model_dump(mode="json"))
        yield self._delta({}, finish_reason=_finish_reason(result))
        if self._wanted.include_usage:
            usage = Usage.model_validate(self._usage) if self._usage else Usage()
            yield self._chunk([], usage=usage.model_dump())
        yield _END

    def _failure(self, error: Exception) -> bytes:
        problem = problem_of(error, request_id=self.request_id)
        return self._content(self._rewriter.finish()) + _event(openai_error(problem)) + _END

    def _content(self, text: str) -> bytes:
        return self._delta({"content": text}) if text else b""

    def _delta(
        self, delta: Mapping[str, Any], *, finish_reason: FinishReason | None = None, **more: Any
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._wanted.include_usage else {}
        return self._chunk([choice], **usage, **more)

    def _chunk(self, choices: Sequence[Mapping[str, Any]], **more: Any) -> bytes:
        return _event(
            {
                "id": self._id,
                "object": "chat.completion.chunk",
                "created": self._created,
                "model": self._wanted.model,
                "choices": choices,
                **more,
            }
        )


def _event(data: Mapping[str, Any]) -> bytes:
    return json_event(encode_json(data))


def _completion_id(query_id: UUID) -> str:
    return f"chatcmpl-{query_id}"


def _finish_reason(result: QueryResult) -> FinishReason:
    return _FINISH_REASONS.get(result.finish_reason, "stop")


def _called_piece(piece: ToolCallDelta) -> dict[str, Any]:
    """Return a piece of a tool call; the first has its id and its name."""
    if piece.id is None:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    function = {"name": piece.name, "arguments": piece.arguments}
    return {"index": piece.index, "id": piece.id, "type": "function", "function": function}


def own_details(result: QueryResult, *, is_json: bool = False) -> OwnDetails:
    """Return the details of an answer that OpenAI's API does not have."""
    return (JsonDetails if is_json else OwnDetails).of(
        result,
        query_id=result.request_id,
        llm_model=result.llm_response and result.llm_response.model,
        sources=numbered_sources(result.sources),
    )
