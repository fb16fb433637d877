"""Load of many queries that records the result of each client."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.support.aws.live_query_function import QUERY_PATH
from tests.support.http.event_stream import read_events

TERMINAL = ("done", "error")
_PATIENCE_S = 60.0
"""Longest wait of a client: a request that is open for longer hangs."""

_PAUSE_S = 1.0
"""Delay before a client that could not be served retries."""


@dataclass(slots=True)
class Answer:
    """A query and its client's result."""

    question: str
    streamed: bool
    status: int | None = None
    """Status, or None if the connection ended before it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """Body of a buffered answer, if it is JSON."""
    events: list[tuple[str, Any]] = field(default_factory=list)
    """Names and data of the completely received events."""
    cut: bool = False
    """The connection broke, visibly for the client."""
    left: bool = False
    """The client itself disconnected."""
    unreadable: bool = False
    """The body is declared as JSON, but invalid."""
    hung: bool = False
    """Nothing arrived for longer than clients wait."""
    seconds: float = 0.0
    """Seconds from the request to its end."""

    @property
    def terminal(self) -> list[str]:
        """Return the events of a stream that end a stream."""
        return [name for name, _ in self.events if name in TERMINAL]

    @property
    def degraded(self) -> list[str]:
        """Return the degradation steps that it names."""
        last = self.body if not self.streamed else self.events[-1][1] if self.events else None
        found = last.get("degraded") if isinstance(last, dict) else None
        return list(found or [])

    @property
    def is_answer(self) -> bool:
        """Return whether the client has an answer, degraded or not."""
        return self.status == 200 and (not self.streamed or self.terminal == ["done"])

    @property
    def problem(self) -> dict[str, Any] | None:
        """Return the problem details of an error status or of the event that ends a stream."""
        if self.streamed and self.status == 200:
            return next((data for name, data in self.events if name == "error"), None)
        is_problem = self.headers.get("content-type", "").startswith("application/problem+json")
        return self.body if is_problem and isinstance(self.body, dict) else None


@dataclass(slots=True)
class Load:
    """The queries of one row.

    Args:
        client: Client with the tenant's key.
        row: Prefix of the query texts.
        requests: Number of queries.
        streams: Selects the queries that are streamed.
        at_once: Maximum number of concurrent requests.
        fields: Returns further fields of a request's body, by its number.
    """

    client: httpx2.AsyncClient
    row: int
    requests: int
    at_once: int = 16
    streams: Callable[[int], bool] = lambda number: number % 2 == 1
    fields: Callable[[int], Mapping[str, Any]] = lambda _: {}
    leaves: Callable[[int], bool] = lambda _: False
    """Selects the clients that disconnect after the first token of their stream."""
    on_answer: Callable[[Answer], None] = lambda _: None
    asking: "Callable[[Load, int], Awaitable[Answer]]" = lambda load, number: load.ask(number)
    """Sends a client's query, by number; its last answer counts."""
    asked: int = 0
    answers: list[Answer] = field(default_factory=list)
    _progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    def question(self, number: int) -> str:
        """Return the unique text of a query."""
        return f"Fault {self.row}, request {number}: how long does a refund take?"

    async def run(self) -> list[Answer]:
        """Send all queries."""
        numbers = iter(range(self.requests))

        async def one_after_another() -> None:
            for number in numbers:
                async with self._progress:
                    self.asked += 1
                    self._progress.notify_all()
                answer = await self.asking(self, number)
                async with self._progress:
                    self.answers.append(answer)
                    self._progress.notify_all()
                self.on_answer(answer)
                if answer.cut:
                    await self._until_reachable()
                elif answer.status == 429 and answer.problem is None:
                    await asyncio.sleep(_PAUSE_S)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(self.at_once, self.requests)):
                tasks.create_task(one_after_another())
        return self.answers

    async def until(self, share: float) -> None:
        """Wait until this share of the queries has been sent."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.asked >= share * self.requests)

    async def until_ended(self, share: float) -> None:
        """Wait until this share of the queries has ended, successfully or not."""
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.answers) >= share * self.requests)

    async def ask(
        self,
        number: int,
        *,
        client: httpx2.AsyncClient | None = None,
        headers: Mapping[str, str] | None = None,
        leaves: bool | None = None,
    ) -> Answer:
        """Send a query once.

        Args:
            number: Number of the query.
            client: Client to use instead of the load's.
            headers: Additional headers of the request.
            leaves: Whether the client disconnects after the first token; by default as ``self.leaves``.
        """
        answer = Answer(self.question(number), streamed=self.streams(number))
        body = {"query": answer.question, "stream": answer.streamed, **self.fields(number)}
        answer.question, started = body["query"], time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                leaving = self.leaves(number) if leaves is None else leaves
                await self._read(client or self.client, answer, body, headers or {}, leaves=leaving)
        except TimeoutError:
            answer.hung = True
        except httpx2.TransportError:
            answer.cut = True
        answer.seconds = time.monotonic() - started
        return answer

    async def _until_reachable(self) -> None:
        """Wait until the service accepts connections, at most as long as clients wait."""
        give_up_at = time.monotonic() + _PATIENCE_S
        while time.monotonic() < give_up_at:
            await asyncio.sleep(_PAUSE_S)
            with contextlib.suppress(httpx2.TransportError):
                await self.client.get("/health", timeout=_PATIENCE_S)
                return

    async def _read(
        self,
        client: httpx2.AsyncClient,
        answer: Answer,
        body: Mapping[str, Any],
        more: Mapping[str, str],
        *,
        leaves: bool,
    ) -> None:
        content = json.dumps(body).encode()  # ASCII: transmits unpaired surrogates unchanged
        headers = {"content-type": "application/json", **more}
        async with client.stream("POST", QUERY_PATH, content=content, headers=headers) as response:
            answer.status = response.status_code
            answer.headers = {name.lower(): value for name, value in response.headers.items()}
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                self._note_body(answer, (await response.aread()).decode())
                return
            async for event in read_events(response.aiter_lines()):
                if event.name != "comment":
                    answer.events.append((event.name, event.data))
                if leaves and event.name == "token":
                    answer.left = True
                    return

    @staticmethod
    def _note_body(answer: Answer, text: str) -> None:
        answer.body = text
        if "json" in answer.headers.get("content-type", ""):
            try:
                answer.body = json.loads(text, parse_constant=_refuse)
            except ValueError:
                answer.unreadable = True


def _refuse(constant: str) -> None:
    """Reject NaN and the infinities, which are invalid in JSON.

    Raises:
        ValueError: Always.
    """
    raise ValueError(constant)
