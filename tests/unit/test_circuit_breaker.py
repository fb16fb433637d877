"""The circuit breaker of a model: opening, half-open calls, and closing."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from vectorforge.errors import (
    LLMAuthenticationError,
    LLMCircuitOpenError,
    LLMError,
    LLMRateLimitError,
    LLMRequestError,
    LLMStreamError,
    LLMTimeoutError,
)
from vectorforge.vendors.resilience import CircuitBreaker, CircuitBreakers


def state_of(breaker: CircuitBreaker) -> str:
    """Return the state; a call, so that type checkers do not narrow it."""
    return breaker.state


class Clock:
    """A clock set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker("openai/gpt-4o", failures=3, open_s=30, clock=clock)


def fail(breaker: CircuitBreaker, error: BaseException | None = None, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(type(error or LLMError())), breaker.call():
            raise error or LLMError()


def work(breaker: CircuitBreaker) -> None:
    with breaker.call():
        pass


async def stream(breaker: CircuitBreaker, error: LLMError | None = None) -> AsyncGenerator[str, None]:
    with breaker.call():
        yield "a first token"
        if error is not None:
            raise error
        yield "and a last"


def test_breaker_opens_after_consecutive_failures(breaker: CircuitBreaker) -> None:  # faults 3, 5
    fail(breaker, LLMTimeoutError(), times=2)
    work(breaker)
    fail(breaker, times=2)
    assert state_of(breaker) == "closed"
    fail(breaker)
    assert state_of(breaker) == "open"
    with pytest.raises(LLMCircuitOpenError) as caught, breaker.call():
        raise AssertionError("was let through")
    assert caught.value.retry_after_s == 30
    assert "openai/gpt-4o" in caught.value.message


async def test_broken_stream_counts_as_failure(breaker: CircuitBreaker) -> None:  # faults 7, 8, 9
    for _ in range(3):
        with pytest.raises(LLMStreamError):
            async for _ in stream(breaker, LLMStreamError()):
                pass
    assert state_of(breaker) == "open"


async def test_first_token_alone_does_not_reset_failures(breaker: CircuitBreaker) -> None:
    fail(breaker, times=2)
    with pytest.raises(LLMStreamError):
        async for _ in stream(breaker, LLMStreamError()):
            pass
    assert state_of(breaker) == "open"


async def test_client_disconnect_leaves_failure_count_unchanged(breaker: CircuitBreaker) -> None:  # fault 15
    fail(breaker, times=2)
    for _ in range(5):
        async with aclosing(stream(breaker)) as tokens:
            await anext(tokens)
    fail(breaker)
    assert state_of(breaker) == "open"  # nor has a disconnect reset the count
    fail(CircuitBreaker("x", failures=1, open_s=1), asyncio.CancelledError(), times=3)


@pytest.mark.parametrize("error", [LLMAuthenticationError(), LLMRequestError(), ValueError(), KeyError("x")])
def test_invalid_request_error_does_not_count_as_failure(breaker: CircuitBreaker, error: Exception) -> None:
    fail(breaker, error, times=10)
    assert state_of(breaker) == "closed"


def test_half_open_breaker_admits_one_call(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, times=3)
    clock.now += 29.9
    assert state_of(breaker) == "open"
    clock.now += 0.2
    assert state_of(breaker) == "half_open"
    with breaker.call():
        assert state_of(breaker) == "open"  # for all other callers
        with pytest.raises(LLMCircuitOpenError), breaker.call():
            raise AssertionError("a second one was let through")
    assert state_of(breaker) == "closed"


def test_failed_probe_reopens_breaker(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, times=3)
    clock.now += 31
    fail(breaker)
    assert state_of(breaker) == "open"
    clock.now += 31
    work(breaker)
    assert state_of(breaker) == "closed"


async def test_disconnected_probe_returns_breaker_to_half_open(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, times=3)
    clock.now += 31
    async with aclosing(stream(breaker)) as tokens:
        await anext(tokens)
        assert state_of(breaker) == "open"
    assert state_of(breaker) == "half_open"


def test_longer_retry_after_extends_open_period(breaker: CircuitBreaker, clock: Clock) -> None:  # fault 2
    fail(breaker, LLMRateLimitError(retry_after_s=90), times=3)
    clock.now += 89
    assert state_of(breaker) == "open"
    clock.now += 2
    assert state_of(breaker) == "half_open"


def test_clock_set_back_half_opens_breaker(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, times=3)
    clock.now -= 3600
    assert state_of(breaker) == "half_open"


def test_breaker_with_zero_failures_never_opens() -> None:
    breaker = CircuitBreakers(failures=0).find("openai", "gpt-4o")
    fail(breaker, times=50)
    assert state_of(breaker) == "closed"


def test_breaker_state_is_separate_per_model() -> None:
    breakers = CircuitBreakers(failures=1)
    fail(breakers.find("openai", "a"))
    assert breakers.find("openai", "a").state == "open"
    assert breakers.find("openai", "b").state == "closed"
    assert breakers.find("azure", "a").state == "closed"


def test_breaker_registry_is_bounded_for_unknown_models() -> None:
    breakers = CircuitBreakers()
    for number in range(5000):
        breakers.find("openai", f"model-{number}")
    assert len(breakers._breakers) <= 1000
