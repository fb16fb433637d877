"""Model of a deployment on AWS: what a query passes, with service times that were measured."""

from dataclasses import dataclass, field, replace

import simpy
from figures.measuring import percentile
from figures.queueing import Draws, Fleet, Process, Quota, Station


@dataclass(frozen=True, slots=True)
class Times:
    """Service times of one query, in seconds; docs/results/performance.md has the measurements."""

    own_s: float = 0.0192
    """CPU of the query function."""
    search_s: float = 0.026
    """Database CPU of a search in 10,000 chunks of 1,536 dimensions, compared exactly."""
    lookup_s: float = 0.001
    """Assumed: CPU of the writer for look-up, limits and cache."""
    log_row_s: float = 0.000082
    """Database CPU of a log record in batches of 100; a query has two."""
    batch_s: float = 0.0475
    """Time of a batch of 100 in a log writer."""
    model_s: float = 4.0
    """Assumed: an answer of 300 tokens."""
    start_s: float = 1.1
    """Start of a new process."""
    tokens: int = 979 + 300


@dataclass(frozen=True, slots=True)
class Deployment:
    """Capacities of a stage."""

    name: str
    cores: int
    """vCPUs of the writer, and of each reader."""
    readers: int = 0
    connections: int = 72
    """Connections of the proxy to each instance."""
    processes: int = 1_000
    """Concurrent executions of the account."""
    log_writers: int = 2
    tokens_per_minute: float = 2e6
    """Assumed: limit of the contract with the vendor."""
    gateway_per_s: int = 10_000
    times: Times = field(default_factory=Times)

    def capacities(self) -> dict[str, float]:
        """Return the queries a second at which each resource is used up."""
        times = self.times
        on_writer = times.lookup_s + 2 * times.log_row_s
        writer = on_writer + (0 if self.readers else times.search_s)
        held = times.search_s + times.lookup_s
        found = {
            "processes": self.processes / (times.own_s + times.search_s + times.lookup_s + times.model_s),
            "writer CPU": self.cores / writer,
            "connections": self.connections * max(1, self.readers) / held,
            "log writers": self.log_writers * 100 / times.batch_s / 2,
            "vendor": self.tokens_per_minute / 60 / times.tokens,
            "API Gateway": float(self.gateway_per_s),
        }
        if self.readers:
            found["reader CPU"] = self.readers * self.cores / times.search_s
        return found

    def first(self) -> tuple[str, float]:
        """Return the resource that is used up first, and its capacity."""
        return min(self.capacities().items(), key=lambda item: item[1])


@dataclass(slots=True)
class Outcome:
    """Result of a simulated time."""

    offered: int = 0
    served: int = 0
    throttled: int = 0
    """Rejected for want of a process or by API Gateway."""
    refused: int = 0
    """Failed after three attempts at the vendor."""
    late: int = 0
    """Failed after waiting longer than the database's timeout."""
    cold: int = 0
    overhead_ms: list[float] = field(default_factory=list)
    """Time of each served query without the model's own."""
    used: dict[str, float] = field(default_factory=dict)
    """Utilization of each station."""

    @property
    def share(self) -> float:
        """Share of the queries that did not fail; those still running at the end count as not failed."""
        failed = self.throttled + self.refused + self.late
        return 1 - failed / self.offered if self.offered else 1.0

    def percentile_ms(self, percent: int) -> float:
        """Return a percentile of the overhead."""
        return percentile(self.overhead_ms, percent) if self.overhead_ms else float("nan")


_DATABASE_TIMEOUT_S = 10.0
_WAITS_S = (1.0, 2.0)
"""Waits before the second and third attempt at the vendor."""


class Simulation:
    """One deployment under Poisson arrivals, whose rate may change once (a burst)."""

    def __init__(self, deployment: Deployment, *, rate: float, seed: int = 1) -> None:
        self.env, self.its, self.rate = simpy.Environment(), deployment, rate
        self.draws = Draws(seed, spread=0.5)
        warm = round(min(rate * (deployment.times.model_s + 0.2), deployment.processes))
        self.fleet = Fleet(self.env, limit=deployment.processes, warm=warm)
        self.vendor = Quota(self.env, deployment.tokens_per_minute)
        self.gateway = Quota(self.env, deployment.gateway_per_s * 60)
        cores, links = deployment.cores, deployment.connections
        self.writer = Station(self.env, cores, self.draws)
        self.links = Station(self.env, links * max(1, deployment.readers), self.draws)
        self.reader = (
            Station(self.env, cores * deployment.readers, self.draws) if deployment.readers else self.writer
        )
        self.log = Station(self.env, deployment.log_writers, self.draws)
        self.outcome, self._records, self._counting = Outcome(), 0, False

    def run(self, *, warm_up_s: float, seconds: float, burst: float = 1.0, burst_s: float = 0.0) -> Outcome:
        """Simulate; the first seconds are not counted, and a burst begins with the count.

        Args:
            warm_up_s: Time before the count.
            seconds: Time counted.
            burst: Factor of the rate.
            burst_s: Length of the burst.
        """
        self.env.process(self._arrivals(self.rate, burst, warm_up_s, warm_up_s + burst_s))
        self.env.run(warm_up_s)
        cold, self._counting = self.fleet.cold_starts, True
        for station in (self.writer, self.reader, self.links, self.log):
            station.reset()
        self.env.run(warm_up_s + seconds)
        stations = {"writer CPU": self.writer, "log writers": self.log}
        if self.its.readers:
            stations["reader CPU"] = self.reader
        self.outcome.used = {name: station.utilization for name, station in stations.items()}
        busy = self.fleet.most_busy / self.its.processes
        self.outcome.used["processes"] = busy
        self.outcome.cold = self.fleet.cold_starts - cold
        return self.outcome

    def _arrivals(self, rate: float, burst: float, begin: float, end: float) -> Process:
        while True:
            factor = burst if begin <= self.env.now < end else 1.0
            yield self.env.timeout(self.draws.gap(rate * factor))
            self.env.process(self._query(counts=self._counting))

    def _query(self, *, counts: bool) -> Process:
        found = self.outcome if counts else Outcome()
        found.offered += 1
        started = self.env.now
        is_new = self.fleet.take() if self.gateway.take(1) else None
        if is_new is None:
            found.throttled += 1
            return
        times, draws = self.its.times, self.draws
        try:
            yield self.env.timeout((draws.time(times.start_s) if is_new else 0) + draws.time(times.own_s))
            asked = self.env.now
            with self.links.resource.request() as link:
                yield link
                yield from self.writer.serve(times.lookup_s)
                yield from self.reader.serve(times.search_s)
            if self.env.now - asked > _DATABASE_TIMEOUT_S:
                found.late += 1
                return
            for wait in (0.0, *_WAITS_S):
                yield self.env.timeout(wait)
                if self.vendor.take(times.tokens):
                    break
            else:
                found.refused += 1
                return
            overhead = self.env.now - started
            yield self.env.timeout(draws.time(times.model_s))
            found.served += 1
            found.overhead_ms.append(overhead * 1000)
        finally:
            self.fleet.give_back()
            self._write_log()

    def _write_log(self) -> None:
        self._records += 2
        if self._records >= 100:
            self._records -= 100
            self.env.process(self._batch())

    def _batch(self) -> Process:
        yield from self.log.serve(self.its.times.batch_s)
        yield from self.writer.serve(100 * self.its.times.log_row_s)


def simulate(deployment: Deployment, rate: float, *, seconds: float, **burst: float) -> Outcome:
    """Simulate a deployment at a rate of queries a second, after a warm-up of six seconds."""
    return Simulation(deployment, rate=rate).run(warm_up_s=6.0, seconds=seconds, **burst)


DEV = Deployment("dev", cores=2)
PROD = Deployment("prod", cores=2, connections=360, log_writers=5, tokens_per_minute=10e6)
AURORA = Deployment(
    "aurora", cores=8, readers=3, connections=1_800, processes=10_000, log_writers=20, tokens_per_minute=200e6
)


def with_readers(readers: int, base: Deployment = AURORA) -> Deployment:
    """Return a deployment with other readers, and everything else ample."""
    return replace(
        base,
        readers=readers,
        processes=60_000,
        log_writers=100,
        tokens_per_minute=1e12,
        gateway_per_s=100_000,
    )
