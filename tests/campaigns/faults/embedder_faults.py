"""Rows 13, 30 and 48: faults of an embedder."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.campaigns.faults.fault import Fault, is_degraded, is_refused
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System
from tests.support.aws.live_query_function import DIMENSION
from tests.support.vendors.fake_embeddings import Reply


class EmbedderDown(Fault):
    number = 13
    name = "the embedder answers 503"
    client_sees = "an answer from a search by words, marked"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        async with embedder_says(system, [Reply(status=503)], load):
            yield

    def wrong(self, answer: Answer) -> str:
        return "" if is_degraded(answer, "lexical") else "not a lexical answer"


class ZeroVectors(Fault):
    number = 30
    name = "an embedder that returns zero vectors"
    client_sees = "a lexical answer, or 502; never NaN"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        zeros = Reply(change=lambda items: [{**one, "embedding": [0.0] * DIMENSION} for one in items])
        async with embedder_says(system, [zeros], load):
            yield

    def wrong(self, answer: Answer) -> str:
        ended = is_degraded(answer, "lexical") or is_refused(answer, 422, 502)
        return "" if ended else "neither a lexical answer nor refused with 422 or 502"


class MalformedVectors(ZeroVectors):
    number = 48
    name = "an embedder with a wrong count, length or numbers, or without JSON"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        malformed = [
            Reply(change=lambda items: items[1:]),
            Reply(change=lambda items: items + items),
            Reply(change=lambda items: [{**one, "embedding": [0.5] * 3} for one in items]),
            Reply(change=lambda items: [{**one, "index": one["index"] + 7} for one in items]),
            Reply(change=lambda items: [{**one, "embedding": [math.nan] * DIMENSION} for one in items]),
            Reply(body="<html>Bad gateway</html>"),
            Reply(body='{"data": '),
        ]
        async with embedder_says(system, malformed, load):
            yield


@asynccontextmanager
async def embedder_says(system: System, replies: Sequence[Reply], load: Load) -> AsyncIterator[None]:
    """Let the embedder return these replies in turn instead of vectors."""
    embeddings = system.surroundings.embeddings
    several = 10 * load.requests // len(replies) + 20
    embeddings.replies = list(replies) * several
    try:
        yield
    finally:
        embeddings.replies = []


EMBEDDER_FAULTS: tuple[type[Fault], ...] = (EmbedderDown, ZeroVectors, MalformedVectors)
