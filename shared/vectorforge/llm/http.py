"""LLM providers over HTTP: response bodies, whole as JSON or event by event (server-sent events).

The SDKs' stream readers build a typed object for every token, which takes ten times the CPU time of this
module, and take a stream that merely ends for a complete answer.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

import orjson

from vectorforge.errors import LLMError
from vectorforge.llm import failures
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.failures import RefusedParameters
from vectorforge.llm.types import Completion, ProviderCall
from vectorforge.vendors.http import VendorTransport
from vectorforge.vendors.response import VendorResponse
from vectorforge.vendors.sdk import SdkClients

_MAX_EVENT_BYTES = 4 * 1024 * 1024
_DRAIN_S = 0.1

Client = TypeVar("Client")


class UnreadBody(Protocol):
    """Unread body of a response; see ``vectorforge.vendors.session``."""

    async def chunk(self) -> bytes:
        """Return the next bytes; empty at the end. Raises ``ConnectionError``."""
        ...

    async def read(self) -> bytes:
        """Return the whole body. Raises ``ConnectionError``, and ``ValueError`` when it is too long."""
        ...

    @property
    def is_read(self) -> bool:
        """True once the end has been read."""
        ...


class StreamAccumulator(ABC):
    """State of a streamed answer besides its text; vendors implement ``_read``."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.reason: str | None = None
        self.usage: dict[str, Any] = {}
        self.is_complete = False
        self.error: Exception | None = None
        """Failure after the text: an error event, or an event that cannot be read."""

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
    def _read(self, data: bytes) -> str:
        """Return the text of one event and update the state."""


class HttpLLMProvider(BaseLLMProvider, Generic[Client]):
    """Provider with a transport of ``vectorforge.vendors``.

    Args:
        connection: Clients of the vendor's SDK, and the transport of requests.
        **options: See ``BaseLLMProvider``.
    """

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

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        response, dropped = await self._send(call, stream=True)
        answer = self._accumulator()
        async with aclosing(response), aclosing(events(response)) as batches:
            async for batch in batches:
                if text := answer.read(batch):
                    yield text
                if answer.error is not None:
                    raise answer.error
                if answer.is_complete:
                    await finish(response)
                    yield self._completion(call, answer.model, answer.reason, answer.usage, dropped)
                    return

    @abstractmethod
    async def _send(self, call: ProviderCall, *, stream: bool) -> tuple[VendorResponse, list[str]]:
        """Send the request; return the response, to be closed, and the parameters left out."""

    @abstractmethod
    def _accumulator(self) -> StreamAccumulator:
        """Return an empty accumulator for one stream."""

    @abstractmethod
    def _completion(
        self,
        call: ProviderCall,
        model: str | None,
        reason: str | None,
        usage: Mapping[str, Any],
        dropped: list[str],
        text: str = "",
    ) -> Completion:
        """Report a finished answer."""

    def _map_error(self, exc: Exception) -> LLMError:
        return failures.error_for_exception(self.name, exc)

    def _safe_cause(self, exc: Exception) -> Exception:
        return self._transport.without_key(exc)


async def read_json(response: UnreadBody) -> Any:
    """Return the whole body, parsed.

    Raises:
        ConnectionError: The connection broke before the end.
        ValueError: The body is not JSON, or too long.
    """
    return orjson.loads(await response.read())


async def events(response: UnreadBody) -> AsyncGenerator[list[bytes], None]:
    """Yield the data of the events in order; events that arrived together come in one list.

    Comments, event names and ids are left out.
    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation.
    Two differences: a lone carriage return ends no line (no vendor sends it), and an event whose lines are
    complete counts at the end of the body even without the empty line after it.

    Raises:
        ConnectionError: The connection broke, or an event is over 4 MiB.
    """
    rest = b""
    data: list[bytes] = []
    size = 0
    while chunk := await response.chunk():
        received = rest + chunk
        if not data and (batch := _plain_events(received)):
            rest = b""
        else:
            *lines, rest = received.split(b"\n")
            batch = []
            for raw in lines:
                line = raw.removesuffix(b"\r")
                if line.startswith(b"data:"):
                    data.append(line[5:].removeprefix(b" "))
                    size += len(line)
                elif not line and data:
                    batch.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data, size = [], 0
        if batch:
            yield batch
        if len(rest) + size > _MAX_EVENT_BYTES:
            raise ConnectionError("an event of the stream is too long")
    if data:
        yield [b"\n".join(data)]


def _plain_events(received: bytes) -> list[bytes]:
    """Return the events if all are complete and have one line of data each, else an empty list.

    Most vendors send tokens this way; splitting all at once takes a quarter of the time.
    """
    if not (received.startswith(b"data: ") and received.endswith(b"\n\n")):
        return []
    whole = received[6:-2]
    batch = whole.split(b"\n\ndata: ")
    is_plain = whole.count(b"\n") == 2 * (len(batch) - 1) and b"\r" not in whole
    return batch if is_plain else []


async def finish(response: UnreadBody) -> None:
    """Read the rest after the last event, for at most 0.1 s, so that the connection can be reused."""
    if response.is_read:
        return
    try:
        async with asyncio.timeout(_DRAIN_S):
            while await response.chunk():
                pass
    except (TimeoutError, ConnectionError):
        return  # the answer is complete; only the connection is lost


async def drain(rest: AsyncIterator[object]) -> None:
    """Read the rest of an event stream, for at most 0.1 s."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in rest:
                pass
    except (TimeoutError, ConnectionError, ValueError):
        return
