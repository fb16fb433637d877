"""Asks the query function one question after another, disturbs each, and notes what the client saw."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import httpx2

from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_process import FunctionProcess, ProcessHook
from infra.emulator.lambda_service.invocation import HookPoint, Invocation
from tests.campaigns.query_log.disturbance import Disturbance, Point
from tests.support.aws.fake_aws import aws_environment
from tests.support.aws.live_query_function import QUERY_PATH, QuerySurroundings, query_surroundings
from tests.support.aws.sqs_proxy import SendingPoint, SqsProxy
from tests.support.http.event_stream import read_events
from tests.support.vendors.fake_vendor import Reply

TEXTS = ("The answer", " is ", "42 [Source 1].")
_BEFORE_TEXT = (Point.SOURCES, Point.FIRST_TOKEN, Point.MIDDLE, Point.LAST_TOKEN)
_SENDING = {
    ("before the queue", True): Point.START_SENT,
    ("in the queue", True): Point.START_QUEUED,
    ("before the queue", False): Point.END_SENT,
    ("in the queue", False): Point.END_QUEUED,
}
_DONE_EVENT = b"event: done"
_RECORD_LINE = '{"type":"vectorforge.query_log"'


@dataclass(slots=True)
class Asked:
    """A question and what its client saw."""

    question: str
    disturbance: Disturbance
    status: int | None = None
    """None: the connection ended before a status."""
    from_platform: bool = False
    """The answer is Lambda's word for a failed function."""
    events: list[str] = field(default_factory=list)
    """Names of the events that arrived whole."""
    received: int = 0
    """Bytes of the function's answer."""
    cut: bool = False
    """The body ended before its end."""
    error: str = ""
    """How the invocation failed, as the service knows it."""

    @property
    def reached_client(self) -> bool:
        """Whether the client got anything of the function's answer, its status included."""
        return self.status is not None and not self.from_platform

    @property
    def saw_done(self) -> bool:
        """Whether the client has the whole answer."""
        return "done" in self.events


class Lane:
    """A function, its vendors and its way into the queue: asks one question at a time."""

    def __init__(self, surroundings: QuerySurroundings, rng: random.Random) -> None:
        self.printed: list[str] = []
        """Records that the function wrote to stdout, because the queue did not take them in time."""
        self._surroundings = surroundings
        surroundings.vendor.unscripted = Reply(texts=TEXTS, gate=self._pass_gate)
        self._rng = rng
        self._asked: Asked | None = None
        self._progress = asyncio.Condition()
        self._function: FunctionProcess | None = None
        self._client: httpx2.AsyncClient | None = None

    @asynccontextmanager
    async def open(self, endpoint: str, queue_url: str) -> AsyncIterator["Lane"]:
        """Start the function behind its front door."""
        async with SqsProxy(
            endpoint,
            hook=self._on_message,
            delays=lambda: self._rng.choice(((0,), (0,), (0,), (1,), (0, 0), (0, 2))),
            keeps_orphans=lambda: self._rng.random() < 0.5,
        ) as proxy:
            environment = self._surroundings.environment(query_log_queue_url=queue_url)
            environment |= aws_environment(proxy.url)
            configuration = self._surroundings.function(environment, freeze_between_invocations=True)
            hooks: dict[HookPoint, ProcessHook] = {
                "after_next_reply": self._at(Point.EVENT),
                "response_opened": self._at(Point.RESPONSE_OPENED),
                "chunk": self._on_chunk,
                "after_response": self._at(Point.TAKEN),
            }
            async with (
                FunctionProcess(configuration, hooks=hooks, on_log=self._on_line) as self._function,
                FunctionUrl(self._function) as door,
                # One connection for each question, so that a cut one is not used again.
                self._surroundings.client(door.url, headers={"Connection": "close"}) as self._client,
            ):
                yield self

    @property
    def starts(self) -> int:
        """Processes started so far."""
        return self._function.starts if self._function else 0

    async def ask(self, question: str, disturbance: Disturbance) -> Asked:
        """Ask, and read the answer as far as it comes."""
        assert self._client is not None
        asked = self._asked = Asked(question, disturbance)
        body = {"query": question, "stream": True}
        try:
            async with self._client.stream("POST", QUERY_PATH, json=body) as response:
                asked.status = response.status_code
                asked.from_platform = response.headers["content-type"] == "text/plain"
                async for event in read_events(self._lines(response, asked)):
                    async with self._progress:
                        asked.events.append(event.name)
                        self._progress.notify_all()
        except httpx2.TransportError:
            asked.cut = True
        await self._wait_for_the_end(asked)
        return asked

    async def _wait_for_the_end(self, asked: Asked) -> None:
        """The environment is free or gone, and the disturbance hits nobody else's question."""
        assert self._function is not None
        invocation = self._function.invocations[-1]
        await invocation.completed.wait()
        if asked.disturbance.happened:
            await asked.disturbance.over.wait()
        if invocation.error is not None:
            asked.error = f"{invocation.error.error_type}: {invocation.error.message}"

    async def _lines(self, response: httpx2.Response, asked: Asked) -> AsyncIterator[str]:
        async for line in response.aiter_lines():
            asked.received = response.num_bytes_downloaded
            yield line

    async def _pass_gate(self, number: int) -> None:
        """The vendor goes on when the client holds what was said before."""
        asked = self._asked
        assert asked is not None

        def held() -> bool:
            return "sources" in asked.events and asked.events.count("token") >= number

        async with self._progress:
            await self._progress.wait_for(held)
        await self._reach(_BEFORE_TEXT[number])

    async def _on_message(self, point: SendingPoint, message: str) -> None:
        record = json.loads(message)
        if self._asked is not None and record["query_text"] == self._asked.question:
            await self._reach(_SENDING[point, record["outcome"] == "started"])

    async def _on_chunk(self, _function: FunctionProcess, _invocation: Invocation, data: bytes) -> None:
        if _DONE_EVENT in data:
            await self._reach(Point.DONE)

    def _at(self, point: Point) -> ProcessHook:
        async def reached(_function: FunctionProcess, _invocation: Invocation, _data: bytes) -> None:
            await self._reach(point)

        return reached

    async def _reach(self, point: Point) -> None:
        if self._asked is not None and self._function is not None:
            await self._asked.disturbance.reach(point, self._function)

    def _on_line(self, line: str) -> None:
        if line.startswith(_RECORD_LINE):
            self.printed.append(line)


async def ask_all(
    lanes: Sequence[Lane], questions: Sequence[tuple[str, Disturbance]], on_asked: Callable[[Asked], None]
) -> list[Asked]:
    """Ask all questions, as many at a time as there are lanes, in order.

    Args:
        lanes: Open.
        questions: With their disturbances.
        on_asked: Called after each.
    """
    waiting = iter(questions)
    found: list[Asked] = []

    async def serve(lane: Lane) -> None:
        for question, disturbance in waiting:
            found.append(await lane.ask(question, disturbance))
            on_asked(found[-1])

    async with asyncio.TaskGroup() as tasks:
        for lane in lanes:
            tasks.create_task(serve(lane))
    return found


@asynccontextmanager
async def open_lanes(
    count: int, *, app_url: str, tenant: str, endpoint: str, queue_url: str, seed: int
) -> AsyncIterator[list[Lane]]:
    """Lanes of one tenant, whose default collection has been filled."""
    async with AsyncExitStack() as stack:
        lanes = []
        for number in range(count):
            surroundings = await stack.enter_async_context(query_surroundings(app_url, tenant, fill=False))
            lane = Lane(surroundings, random.Random(f"{seed}-{number}"))
            lanes.append(await stack.enter_async_context(lane.open(endpoint, queue_url)))
        yield lanes
