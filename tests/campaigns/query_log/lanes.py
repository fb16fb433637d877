"""Query the query function in sequence, disturb each query, and record the client's result."""

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
class DisturbedQuery:
    """A query and its client's result."""

    question: str
    disturbance: Disturbance
    status: int | None = None
    """Status, or None if the connection ended before it."""
    from_platform: bool = False
    """The response is Lambda's error for a failed function."""
    events: list[str] = field(default_factory=list)
    """Names of the completely received events."""
    received: int = 0
    """Bytes received of the function's response."""
    cut: bool = False
    """The body was truncated."""
    error: str = ""
    """Failure of the invocation, as recorded by the service."""

    @property
    def reached_client(self) -> bool:
        """Return whether the client received any part of the function's response, its status included."""
        return self.status is not None and not self.from_platform

    @property
    def saw_done(self) -> bool:
        """Return whether the client has the whole answer."""
        return "done" in self.events


class Lane:
    """A function with its vendors and queue; sends one query at a time."""

    def __init__(self, surroundings: QuerySurroundings, rng: random.Random) -> None:
        self.printed: list[str] = []
        """Records that the function wrote to stdout, because the queue did not accept them in time."""
        self._surroundings = surroundings
        surroundings.vendor.unscripted = Reply(texts=TEXTS, gate=self._pass_gate)
        self._rng = rng
        self._query: DisturbedQuery | None = None
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
            delivers_orphans=lambda: self._rng.random() < 0.5,
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
                FunctionUrl(self._function) as front_door,
                # One connection for each query, so that a cut one is not reused.
                self._surroundings.client(front_door.url, headers={"Connection": "close"}) as self._client,
            ):
                yield self

    @property
    def starts(self) -> int:
        """Number of processes started so far."""
        return self._function.starts if self._function else 0

    async def ask(self, question: str, disturbance: Disturbance) -> DisturbedQuery:
        """Send a query, and read as much of the response as arrives."""
        assert self._client is not None
        query = self._query = DisturbedQuery(question, disturbance)
        body = {"query": question, "stream": True}
        try:
            async with self._client.stream("POST", QUERY_PATH, json=body) as response:
                query.status = response.status_code
                query.from_platform = response.headers["content-type"] == "text/plain"
                async for event in read_events(self._lines(response, query)):
                    async with self._progress:
                        query.events.append(event.name)
                        self._progress.notify_all()
        except httpx2.TransportError:
            query.cut = True
        await self._wait_for_the_end(query)
        return query

    async def _wait_for_the_end(self, query: DisturbedQuery) -> None:
        """Wait until the environment is free or gone, so that the disturbance affects no other query."""
        assert self._function is not None
        invocation = self._function.invocations[-1]
        await invocation.completed.wait()
        if query.disturbance.happened:
            await query.disturbance.over.wait()
        if invocation.error is not None:
            query.error = f"{invocation.error.error_type}: {invocation.error.message}"

    async def _lines(self, response: httpx2.Response, query: DisturbedQuery) -> AsyncIterator[str]:
        async for line in response.aiter_lines():
            query.received = response.num_bytes_downloaded
            yield line

    async def _pass_gate(self, number: int) -> None:
        """Let the vendor continue once the client has received the previous text."""
        query = self._query
        assert query is not None

        def held() -> bool:
            return "sources" in query.events and query.events.count("token") >= number

        async with self._progress:
            await self._progress.wait_for(held)
        await self._reach(_BEFORE_TEXT[number])

    async def _on_message(self, point: SendingPoint, message: str) -> None:
        record = json.loads(message)
        if self._query is not None and record["query_text"] == self._query.question:
            await self._reach(_SENDING[point, record["outcome"] == "started"])

    async def _on_chunk(self, _function: FunctionProcess, _invocation: Invocation, data: bytes) -> None:
        if _DONE_EVENT in data:
            await self._reach(Point.DONE)

    def _at(self, point: Point) -> ProcessHook:
        async def reached(_function: FunctionProcess, _invocation: Invocation, _data: bytes) -> None:
            await self._reach(point)

        return reached

    async def _reach(self, point: Point) -> None:
        if self._query is not None and self._function is not None:
            await self._query.disturbance.reach(point, self._function)

    def _on_line(self, line: str) -> None:
        if line.startswith(_RECORD_LINE):
            self.printed.append(line)


async def run_queries(
    lanes: Sequence[Lane],
    queries: Sequence[tuple[str, Disturbance]],
    on_query: Callable[[DisturbedQuery], None],
) -> list[DisturbedQuery]:
    """Send all queries in order, one at a time in each lane.

    Args:
        lanes: The open lanes.
        queries: Queries with their disturbances.
        on_query: Called after each query.
    """
    waiting = iter(queries)
    found: list[DisturbedQuery] = []

    async def serve(lane: Lane) -> None:
        for question, disturbance in waiting:
            found.append(await lane.ask(question, disturbance))
            on_query(found[-1])

    async with asyncio.TaskGroup() as tasks:
        for lane in lanes:
            tasks.create_task(serve(lane))
    return found


@asynccontextmanager
async def open_lanes(
    count: int, *, app_url: str, tenant: str, endpoint: str, queue_url: str, seed: int
) -> AsyncIterator[list[Lane]]:
    """Open lanes of one tenant with a filled default collection."""
    async with AsyncExitStack() as stack:
        lanes = []
        for number in range(count):
            surroundings = await stack.enter_async_context(query_surroundings(app_url, tenant, fill=False))
            lane = Lane(surroundings, random.Random(f"{seed}-{number}"))
            lanes.append(await stack.enter_async_context(lane.open(endpoint, queue_url)))
        yield lanes
