"""LLM providers over HTTP: requests, and response bodies, whole or event by event (server-sent events).

The SDKs' stream readers build a typed object for every token, which takes ten times the CPU time of this
module, and take a stream that merely ends for a complete answer.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any, ClassVar, Generic, TypeVar

import orjson

from vectorforge.errors import LLMError
from vectorforge.llm import failures
from vectorforge.llm.base import BaseLLMProvider, StreamItem
from vectorforge.llm.tools import ToolCallDelta, join_tool_calls
from vectorforge.llm.types import Completion, FinishReason, LLMRequestConfig, ProviderCall
from vectorforge.vendors.http import CONNECT_TIMEOUT_S, VendorTransport
from vectorforge.vendors.response import VendorResponse, VendorStatusError
from vectorforge.vendors.sdk import SdkClients

_MAX_EVENT_BYTES = 4 * 1024 * 1024
_DRAIN_S = 0.1
_MAX_MODELS = 256
"""Bound on memory: model names come from callers."""
_SAMPLING = ("temperature", "top_p", "stop_sequences", "frequency_penalty", "presence_penalty")
_FORMATS = ("output_config", "response_format.json_schema", "response_format")
"""Parts of a request for JSON that a vendor may refuse."""

Client = TypeVar("Client")
T = TypeVar("T")


class StreamAccumulator(ABC):
    """State of one answer, streamed or whole, besides its text."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.model: str | None = None
        self.reason: str | None = None
        self.usage: Mapping[str, Any] = {}
        self.is_complete = False
        self.error: Exception | None = None
        """Failure after the text: an error event, or an event that cannot be read."""
        self.calls: list[ToolCallDelta] = []  # pieces of tool calls; a stream takes them out as they come

    def read(self, batch: Iterable[bytes]) -> str:
        """Return the text of events that arrived together, joined: consumers pay for each text they get."""
        texts: list[str] = []
        try:
            for data in batch:
                texts.append(self._read(data))
                if self.is_complete or self.error is not None:
                    break
        except Exception as exc:  # noqa: BLE001 - raised after the text before it
            self.error = exc
        return "".join(texts)

    @abstractmethod
    def read_whole(self, answer: Any) -> str:
        """Return the text of a parsed body and update the state."""

    @abstractmethod
    def _read(self, data: bytes) -> str:
        """Return the text of one event and update the state."""


class RefusedParameters:
    """Parameters refused by each model of a provider, cached for the process; the latest 256 models."""

    def __init__(self) -> None:
        self._by_model: OrderedDict[str, frozenset[str]] = OrderedDict()

    def of(self, model: str) -> frozenset[str]:
        """Return the names that this model has refused."""
        return self._by_model.get(model, frozenset())

    async def send(
        self,
        model: str,
        attempt: Callable[[frozenset[str]], Awaitable[T]],
        refused_name: Callable[[Exception, frozenset[str]], str | None],
        is_callers_schema: bool = False,
    ) -> tuple[T, frozenset[str]]:
        """Send a request, and resend it without each parameter that the model refuses.

        Args:
            model: Model of the request; its refusals are cached once a request without them succeeds.
            attempt: Sends the request without the given parameters.
            refused_name: Returns the parameter that an exception refuses, given those left out, or None.
            is_callers_schema: True: a refusal of the schema is not cached.

        Returns:
            The result of ``attempt``, and the parameters left out.
        """
        refused = self.of(model)
        while True:
            try:
                result = await attempt(refused)
            except Exception as exc:
                name = refused_name(exc, refused)
                if name is None or name in refused:
                    raise
                refused |= {name}
            else:
                if lasting := self.of(model) | refused.difference(_FORMATS if is_callers_schema else ()):
                    self._by_model[model] = lasting
                    self._by_model.move_to_end(model)
                if len(self._by_model) > _MAX_MODELS:
                    self._by_model.popitem(last=False)
                return result, refused


def dropped_parameters(config: LLMRequestConfig, left_out: Collection[str]) -> list[str]:
    """Return the requested parameters among those that were left out of a request."""
    formats = _FORMATS if config.response_schema is not None or config.json_object else ()
    requested = [
        name for name in (*_SAMPLING, "parallel_tool_calls") if getattr(config, name) not in (None, ())
    ]
    return [name for name in (*requested, *formats) if name in left_out]


class HttpLLMProvider(BaseLLMProvider, Generic[Client]):
    """Provider with a transport of ``vectorforge.vendors``.

    Args:
        connection: Clients of the vendor's SDK, and the transport of requests.
        **options: See ``BaseLLMProvider``.
    """

    finish_reasons: ClassVar[Mapping[str | None, FinishReason]]
    """Our finish reason for each of the vendor's; "other" for the rest."""
    usage_fields: ClassVar[tuple[str, str]]
    """The vendor's names of the numbers of tokens sent and received."""
    unsupported: ClassVar[tuple[str, ...]] = ()
    """Sampling parameters that the API does not have."""

    def __init__(self, connection: tuple[SdkClients[Client], VendorTransport], **options: Any) -> None:
        self._sdk, self._transport = connection
        self._refused = RefusedParameters()
        super().__init__(**options)

    @property
    def _client(self) -> Client:
        """The official SDK's client for the same server and key, imported when first used."""
        return self._sdk.get()

    async def preload(self) -> None:
        """Import the transport's packages."""
        await self._transport.preload()

    async def aclose(self) -> None:
        """Close connections. The provider may be used again and reconnects."""
        await self._transport.aclose()
        await self._sdk.aclose()

    async def _call_api(self, call: ProviderCall) -> Completion:
        response, dropped = await self._send(call, stream=False)
        async with aclosing(response):
            body = orjson.loads(await response.read())
        answer = self._accumulator()
        text = answer.read_whole(body)
        return self._completion(call, answer, dropped, text)

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[StreamItem, None]:
        response, dropped = await self._send(call, stream=True)
        answer = self._accumulator()
        async with aclosing(response), aclosing(events(response.chunk)) as batches:
            async for batch in batches:
                if text := answer.read(batch):
                    yield text
                while answer.calls:
                    yield answer.calls.pop(0)
                if answer.error is not None:
                    raise answer.error
                if answer.is_complete:
                    if not response.is_read:
                        await drain(response.chunk)
                    yield self._completion(call, answer, dropped)
                    return

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any]:
        return self._request_body(call, self._refused.of(call.config.model), stream=stream)

    async def _send(self, call: ProviderCall, *, stream: bool) -> tuple[VendorResponse, list[str]]:
        """Send the request; return the response, to be closed, and the parameters left out."""
        url = self._url(self._path)
        connect_s = min(CONNECT_TIMEOUT_S, call.timeout_s)
        config = call.config

        async def attempt(refused: frozenset[str]) -> VendorResponse:
            body = self._request_body(call, refused, stream=stream)
            # The base class limits silence, and counts pings as silence.
            return await self._transport.post(url, body, connect_timeout_s=connect_s)

        def refused_name(exc: Exception, refused: frozenset[str]) -> str | None:
            return self._refused_name(exc, config, refused) if isinstance(exc, VendorStatusError) else None

        sent = self._refused.send(config.model, attempt, refused_name, config.is_callers_schema)
        response, refused = await sent
        return response, dropped_parameters(config, {*refused, *self.unsupported})

    @property
    @abstractmethod
    def _path(self) -> str:
        """Endpoint path for answers."""

    @abstractmethod
    def _url(self, path: str) -> str:
        """Return the address of an endpoint, for the transport."""

    @abstractmethod
    def _request_body(self, call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
        """Return the JSON of a request without the refused parameters."""

    @abstractmethod
    def _refused_name(
        self, exc: VendorStatusError, config: LLMRequestConfig, refused: frozenset[str]
    ) -> str | None:
        """Return the parameter that a response refuses, or None; ``refused`` were left out already."""

    @abstractmethod
    def _accumulator(self) -> StreamAccumulator:
        """Return an empty accumulator for one answer."""

    def _completion(
        self, call: ProviderCall, answer: StreamAccumulator, dropped: list[str], text: str = ""
    ) -> Completion:
        sent, received = self.usage_fields
        return Completion(
            model=answer.model or call.config.model,
            finish_reason=self.finish_reasons.get(answer.reason, "other"),
            content=text,
            prompt_tokens=answer.usage.get(sent),
            completion_tokens=answer.usage.get(received),
            tool_calls=join_tool_calls(answer.calls) if answer.calls else (),
            metadata={"dropped_parameters": dropped} if dropped else {},
        )

    def _map_error(self, exc: Exception) -> LLMError:
        return failures.error_for_exception(self.name, exc)

    def _safe_cause(self, exc: Exception) -> Exception:
        return self._transport.without_key(exc)


async def events(chunk: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[list[bytes], None]:
    """Yield the data of the events in order; events that arrived together come in one list.

    Comments, event names and ids are left out.
    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation.
    Two differences: a lone carriage return ends no line (no vendor sends it), and an event whose lines are
    complete counts at the end of the body even without the empty line after it.

    Args:
        chunk: Returns the next bytes of the body; empty at its end.

    Raises:
        ConnectionError: The connection broke, or an event is over 4 MiB.
    """
    rest = b""
    data: list[bytes] = []
    size = 0
    while received := await chunk():
        *lines, rest = (rest + received).split(b"\n")
        batch: list[bytes] = []
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
                size += len(line)
            elif not line and data:
                batch.append(b"\n".join(data))
                data, size = [], 0
        if batch:
            yield batch
        if len(rest) + size > _MAX_EVENT_BYTES:
            raise ConnectionError("an event of the stream is too long")
    if data:
        yield [b"\n".join(data)]


async def drain(read: Callable[[], Awaitable[object]]) -> None:
    """Read the rest after the last event, for at most 0.1 s, so that the connection can be reused.

    Args:
        read: Returns the next part; false at the end. Its errors do not matter: the answer is complete.
    """
    with suppress(TimeoutError, ConnectionError, ValueError):
        async with asyncio.timeout(_DRAIN_S):
            while await read():
                pass
