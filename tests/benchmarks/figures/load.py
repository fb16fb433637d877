"""Open-loop load on a real local server, and the same load in the model."""

import asyncio
import random
import time
from dataclasses import dataclass

import aiohttp
import simpy
from figures.database import fresh_database, settle
from figures.measuring import cpu_s, percentile, postgres_cpu_s
from figures.queries import Asker, Samples, prepare
from figures.queueing import Draws, Process, Station
from figures.server import started

from vectorforge.db.connection import Database
from vectorforge.local.postgres import EmbeddedPostgres

_SEED = 5
_CALIBRATION = 60
"""Queries, one after the other."""


@dataclass(frozen=True, slots=True)
class LocalTimes:
    """Service times of a query to the local server, in seconds, measured one at a time."""

    server_s: float
    """CPU of the server's one thread."""
    database_s: float
    client_s: float
    """CPU of the load generator and the fake model, which share the machine."""
    idle_s: float
    """Rest of the median, without CPU."""
    share: float = 1.0
    """Share of a core that a busy process got, since other work runs on the machine."""


@dataclass(frozen=True, slots=True)
class Point:
    """Offered rate, and what came of it."""

    rate: float
    throughput: float
    p50_ms: float
    p95_ms: float
    failed: int = 0
    """Queries rejected with 503, mostly since too many waited for a connection."""


async def measure(
    server: EmbeddedPostgres, rates: list[float], seconds: float, chunks: int
) -> tuple[LocalTimes, list[Point]]:
    """Measure service times one query at a time, then latencies at each rate (Poisson arrivals)."""
    with fresh_database(server, "load") as (url, owner_url):
        async with Database(url) as database:
            await prepare(database, chunks)
        settle(owner_url)
        with (
            started("model") as model,
            started("service", database_url=url, model_url=model.url) as service,
        ):
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                asker = Asker(session, service.url)
                for _ in range(30):
                    await asker.ask(Samples(), stream=False)
                own = cpu_s(service.pid), postgres_cpu_s(server.pid), cpu_s(model.pid), time.process_time()
                calm = Samples()
                for _ in range(_CALIBRATION):
                    await asker.ask(calm, stream=False)
                after = cpu_s(service.pid), postgres_cpu_s(server.pid), cpu_s(model.pid), time.process_time()
                spent = [(b - a) / _CALIBRATION for a, b in zip(own, after, strict=True)]
                share = _share()
                rest = percentile(calm.total_ms, 50) / 1000 - sum(spent) / share
                times = LocalTimes(spent[0], spent[1], spent[2] + spent[3], max(rest, 0.0), share)
                return times, [await _at(asker, rate, seconds) for rate in rates]


def _share(seconds: float = 2.0) -> float:
    """Work without a pause, and return the CPU time that it got as a share of the time that passed."""
    begun, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - begun < seconds:
        pass
    return (time.process_time() - used) / (time.perf_counter() - begun)


async def _at(asker: Asker, rate: float, seconds: float) -> Point:
    rng, samples, tasks = random.Random(_SEED), Samples(), list[asyncio.Task[None]]()
    begun, due = time.perf_counter(), 0.0
    while due < seconds:
        await asyncio.sleep(max(0.0, begun + due - time.perf_counter()))
        tasks.append(asyncio.create_task(asker.ask(samples, stream=False)))
        due += rng.expovariate(rate)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    elapsed = time.perf_counter() - begun
    failed = sum(isinstance(one, Exception) for one in ended)
    return Point(
        rate,
        (len(tasks) - failed) / elapsed,
        percentile(samples.total_ms, 50),
        percentile(samples.total_ms, 95),
        failed,
    )


def predict(times: LocalTimes, rate: float, seconds: float, *, cores: int) -> Point:
    """Simulate the local server: one thread of Python, the database and the client share the cores."""
    env, draws = simpy.Environment(), Draws(seed=3, spread=0.5)
    rng = random.Random(_SEED)  # the same arrivals as in reality
    machine, thread, found = Station(env, cores, draws), Station(env, 1, draws), list[float]()

    def query() -> Process:
        begun = env.now
        for _ in range(2):  # before the model and after it
            with thread.resource.request() as turn:
                yield turn
                yield from machine.serve(times.server_s / 2 / times.share)
            yield from machine.serve(times.database_s / 2 / times.share)
            yield from machine.serve(times.client_s / 2 / times.share)
        yield env.timeout(times.idle_s)
        found.append((env.now - begun) * 1000)

    def arrive() -> Process:
        while env.now < seconds:
            env.process(query())
            yield env.timeout(rng.expovariate(rate))

    env.process(arrive())
    env.run()
    return Point(rate, len(found) / env.now, percentile(found, 50), percentile(found, 95))
