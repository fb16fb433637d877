"""Asks the service many questions, and notes what each client saw."""

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
"""Longest wait of a client for anything: a request that is open for so long hangs."""

_PAUSE_S = 1.0
"""Of a client that could not be served, before it tries again."""


@dataclass(slots=True)
class Answer:
    """A question and what its client saw."""

    question: str
    streamed: bool
    status: int | None = None
    """None: the connection ended before a status."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """Of an answer that is no stream, when it is JSON."""
    events: list[tuple[str, Any]] = field(default_factory=list)
    """Names and data of the events that arrived whole."""
    cut: bool = False
    """The connection broke, and the client knows it."""
    left: bool = False
    """The client itself went away."""
    unreadable: bool = False
    """Called JSON, and is none."""
    hung: bool = False
    """Nothing came for longer than any client waits."""
    seconds: float = 0.0
    """From the request to its end."""

    @property
    def terminal(self) -> list[str]:
        """The events of a stream that end one."""
        return [name for name, _ in self.events if name in TERMINAL]

    @property
    def degraded(self) -> list[str]:
        """The steps down from a full answer that it names."""
        last = self.body if not self.streamed else self.events[-1][1] if self.events else None
        found = last.get("degraded") if isinstance(last, dict) else None
        return list(found or [])

    @property
    def is_answer(self) -> bool:
        """Whether the client has an answer, degraded or not."""
        return self.status == 200 and (not self.streamed or self.terminal == ["done"])

    @property
    def problem(self) -> dict[str, Any] | None:
        """The problem details: of an error status, or of the event that ends a stream."""
        if self.streamed and self.status == 200:
            return next((data for name, data in self.events if name == "error"), None)
        is_problem = self.headers.get("content-type", "").startswith("application/problem+json")
        return self.body if is_problem and isinstance(self.body, dict) else None


@dataclass(slots=True)
class Load:
    """The questions of one row.

    Args:
        client: With the tenant's key.
        row: What they begin with.
        requests: How many.
        streams: Which of them are streamed.
        at_once: How many are open at the same time.
        fields: Fields of a request's body, by its number.
    """

    client: httpx2.AsyncClient
    row: int
    requests: int
    at_once: int = 16
    streams: Callable[[int], bool] = lambda number: number % 2 == 1
    fields: Callable[[int], Mapping[str, Any]] = lambda _: {}
    leaves: Callable[[int], bool] = lambda _: False
    """Whether the client of a streamed answer goes away after its first token."""
    on_answer: Callable[[Answer], None] = lambda _: None
    asking: "Callable[[Load, int], Awaitable[Answer]]" = lambda load, number: load.ask(number)
    """What a client does with its question, by number; its last answer counts."""
    asked: int = 0
    answers: list[Answer] = field(default_factory=list)
    _progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    def question(self, number: int) -> str:
        """The text of a question; no other has it."""
        return f"Fault {self.row}, request {number}: how long does a refund take?"

    async def run(self) -> list[Answer]:
        """Ask them all."""
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
        """Wait until this share of the questions has been asked."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.asked >= share * self.requests)

    async def until_ended(self, share: float) -> None:
        """Wait until this share of the questions has come to its end, good or bad."""
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
        """Send a question once.

        Args:
            number: Of the question.
            client: Another one.
            headers: Of the request, beside the usual ones.
            leaves: Whether the client goes away after the first token; None: as ``self.leaves`` says.
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
        """Wait, as long as clients wait for anything, until somebody listens again."""
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
        content = json.dumps(body).encode()  # ASCII: halves of surrogate pairs go as they are
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
    """NaN and the infinities, which are no JSON.

    Raises:
        ValueError: Always.
    """
    raise ValueError(constant)
