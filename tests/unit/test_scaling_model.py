"""Invariants of the scaling model: closed formulas, Little's law, monotone in its resources."""

import math
from dataclasses import replace
from typing import Any

import pytest
import simpy
from figures.deployment import AURORA, DEV, PROD, Simulation, simulate, with_readers
from figures.queueing import Draws, Fleet, Process, Quota, Station, erlang_c, mean_wait_s


def loaded(servers: int, rate: float, service_s: float, seconds: float = 1_500) -> Station:
    """Return a station after Poisson arrivals with exponential service."""
    env, draws = simpy.Environment(), Draws(seed=7)
    station = Station(env, servers, draws)

    def arrive() -> Process:
        while True:
            yield env.timeout(draws.gap(rate))
            env.process(station.serve(service_s))

    env.process(arrive())
    env.run(200)
    station.reset()
    env.run(200 + seconds)
    return station


def test_erlang_c_with_one_server_equals_utilization() -> None:
    assert erlang_c(0.7, 1) == pytest.approx(0.7)
    assert mean_wait_s(0.7, 1.0, 1) == pytest.approx(0.7 / 0.3)
    assert erlang_c(8.0, 10) == pytest.approx(0.409, abs=0.001)  # tables of Erlang C
    assert mean_wait_s(3.0, 1.0, 3) == math.inf


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.8), (2, 0.8), (8, 0.8)])
def test_simulated_wait_matches_closed_formula(servers: int, load: float) -> None:
    rate = load * servers * 10
    station = loaded(servers, rate, 0.1)
    assert station.waited_s / station.done == pytest.approx(mean_wait_s(rate, 0.1, servers), rel=0.15)
    assert station.utilization == pytest.approx(load, rel=0.03)


def test_littles_law_holds_in_a_station() -> None:
    station = loaded(2, 16.0, 0.1)
    rate = station.done / 1_500
    assert station.mean_present == pytest.approx(rate * station.present_s / station.done, rel=1e-9)
    assert station.mean_present == pytest.approx(16.0 * (0.1 + mean_wait_s(16.0, 0.1, 2)), rel=0.1)


def test_littles_law_holds_for_processes() -> None:
    simulation = Simulation(PROD, rate=20)
    simulation.run(warm_up_s=20, seconds=60)
    expected = 20 * (PROD.times.model_s + PROD.times.own_s + PROD.times.search_s)
    assert expected <= simulation.fleet.most_busy <= 1.5 * expected


def test_wait_falls_with_servers_and_rises_with_rate() -> None:
    assert loaded(3, 16.0, 0.1).waited_s < loaded(2, 16.0, 0.1).waited_s < loaded(2, 19.0, 0.1).waited_s


def test_no_resource_reduces_the_capacity() -> None:
    more: list[dict[str, Any]] = [
        {"cores": 64},
        {"connections": 10_000},
        {"processes": 50_000},
        {"log_writers": 500},
        {"tokens_per_minute": 1e12},
    ]
    for one in (DEV, PROD, AURORA):
        assert all(replace(one, **values).first()[1] >= one.first()[1] for values in more)
    assert [with_readers(n).first()[1] for n in range(16)] == sorted(
        with_readers(n).first()[1] for n in range(16)
    )


@pytest.mark.parametrize("one", [DEV, PROD])
def test_capacity_is_where_answers_begin_to_fail(one: object) -> None:
    assert isinstance(one, type(DEV))
    limit = one.first()[1]
    assert simulate(one, 0.7 * limit, seconds=10).share > 0.99
    assert simulate(one, 2.5 * limit, seconds=25).share < 0.9


def test_fleet_throttles_beyond_its_limit_and_reuses_processes() -> None:
    fleet = Fleet(simpy.Environment(), limit=2)
    assert [fleet.take(), fleet.take(), fleet.take()] == [True, True, None]
    fleet.give_back()
    assert fleet.take() is False
    assert (fleet.cold_starts, fleet.throttled) == (2, 1)


def test_quota_refuses_more_than_its_rate() -> None:
    env = simpy.Environment()
    quota = Quota(env, per_minute=600)
    assert sum(quota.take(1) for _ in range(200)) == 100
    env.run(1.0)
    assert sum(quota.take(1) for _ in range(200)) == 10
