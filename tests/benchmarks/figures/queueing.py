"""Queues in SimPy that count what they do, and the closed formulas that hold them to account."""

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import simpy

Process: TypeAlias = Generator[simpy.Event, Any, None]


def erlang_c(offered: float, servers: int) -> float:
    """Return the probability of waiting in M/M/c; ``offered`` is rate × service time, below ``servers``."""
    term = total = 1.0
    for number in range(1, servers):
        term *= offered / number
        total += term
    last = term * offered / servers * servers / (servers - offered)
    return last / (total + last)


def mean_wait_s(rate: float, service_s: float, servers: int) -> float:
    """Return the mean wait in M/M/c before service; infinite if the servers do not suffice."""
    if rate * service_s >= servers:
        return math.inf
    return erlang_c(rate * service_s, servers) * service_s / (servers - rate * service_s)


@dataclass(slots=True)
class Draws:
    """Random times with a mean; ``spread`` is their coefficient of variation, 1 for exponential ones."""

    seed: int = 1
    spread: float = 1.0
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def time(self, mean_s: float) -> float:
        """Return a time of a gamma distribution."""
        if mean_s <= 0 or self.spread == 0:
            return max(mean_s, 0.0)
        shape = 1 / self.spread**2
        return self.rng.gammavariate(shape, mean_s / shape)

    def gap(self, rate: float) -> float:
        """Return the time to the next arrival of a Poisson process."""
        return self.rng.expovariate(rate)


class Station:
    """Servers with one queue. Counts from ``reset`` on.

    Args:
        env: Environment.
        servers: Number of servers.
        draws: Source of service times.
    """

    def __init__(self, env: simpy.Environment, servers: int, draws: Draws) -> None:
        self.env, self.servers, self.draws = env, servers, draws
        self.resource = simpy.Resource(env, servers)
        self.reset()

    def reset(self) -> None:
        """Begin to count."""
        self.since = self.env.now
        self.done, self.busy_s, self.waited_s, self.present_s = 0, 0.0, 0.0, 0.0

    def serve(self, mean_s: float) -> Process:
        """Wait for a server and hold it."""
        arrived = self.env.now
        with self.resource.request() as turn:
            yield turn
            begun, held = self.env.now, self.draws.time(mean_s)
            yield self.env.timeout(held)
        self.done += 1
        self.busy_s += held
        self.waited_s += begun - arrived
        self.present_s += self.env.now - arrived

    @property
    def utilization(self) -> float:
        """Share of the servers' time that was used."""
        elapsed = self.env.now - self.since
        return self.busy_s / (elapsed * self.servers) if elapsed else 0.0

    @property
    def mean_present(self) -> float:
        """Mean number of customers, waiting or served, as their times add up."""
        return self.present_s / (self.env.now - self.since)


class Fleet:
    """Processes of a Lambda function: reused when idle, started up to a limit, which grows at a pace.

    Args:
        env: Environment.
        limit: Concurrent processes of the account.
        per_10_s: New processes in ten seconds.
        warm: Processes at the start.
    """

    def __init__(self, env: simpy.Environment, *, limit: int, per_10_s: int = 1_000, warm: int = 0) -> None:
        self._env, self._limit, self._pace, self._allowance = env, limit, per_10_s / 10, float(per_10_s)
        self._burst, self._at = float(per_10_s), env.now
        self.processes = self._idle = min(warm, limit)
        self.cold_starts = self.throttled = self.most_busy = 0

    def take(self) -> bool | None:
        """Take a process: True if it is new, False if it is warm, None if the request is throttled."""
        elapsed, self._at = self._env.now - self._at, self._env.now
        self._allowance = min(self._burst, self._allowance + elapsed * self._pace)
        if self._idle:
            self._idle -= 1
            is_new = False
        elif self.processes < self._limit and self._allowance >= 1:
            self._allowance -= 1
            self.processes += 1
            self.cold_starts += 1
            is_new = True
        else:
            self.throttled += 1
            return None
        self.most_busy = max(self.most_busy, self.processes - self._idle)
        return is_new

    def give_back(self) -> None:
        """Return a process for the next request."""
        self._idle += 1


class Quota:
    """Token bucket of a vendor: so many tokens a minute, of which ten seconds' worth can be used at once."""

    def __init__(self, env: simpy.Environment, per_minute: float) -> None:
        self._env, self._rate, self._left, self._at = env, per_minute / 60, per_minute / 6, env.now
        self._most = per_minute / 6

    def take(self, tokens: float) -> bool:
        """Return whether a request fits."""
        elapsed, self._at = self._env.now - self._at, self._env.now
        self._left = min(self._most, self._left + elapsed * self._rate)
        fits = self._left >= tokens
        self._left -= tokens if fits else 0
        return fits
