"""The shared retry policy."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from vectorforge.deadline import Deadline
from vectorforge.errors import (
    DeadlineExceededError,
    InvalidInputError,
    LLMAuthenticationError,
    LLMError,
    LLMRateLimitError,
    LLMTimeoutError,
)
from vectorforge.vendors.resilience import RetryBudget, with_retries

NOW = LLMRateLimitError("busy", retry_after_s=0.0)


def failing(*errors: Exception) -> tuple[Callable[[], Awaitable[str]], list[int]]:
    """Return an operation that raises these errors in turn and then succeeds, and the list of its calls."""
    calls: list[int] = []
    waiting = list(errors)

    async def operation() -> str:
        calls.append(len(calls) + 1)
        if waiting:
            raise waiting.pop(0)
        return "done"

    return operation, calls


# A-068 C23
@pytest.mark.parametrize("failures", [0, 1, 3])
async def test_operation_is_retried_until_success(failures: int) -> None:
    operation, calls = failing(*[NOW] * failures)
    retried: list[None] = []
    result = await with_retries(
        operation, retries=3, deadline=Deadline.never(), on_retry=lambda: retried.append(None)
    )
    assert result == "done"
    assert (len(calls), len(retried)) == (failures + 1, failures)


# A-068 A-073
@pytest.mark.parametrize("retries", [0, 3])
async def test_exhausted_retries_raise_last_error(retries: int) -> None:
    operation, calls = failing(*[NOW] * 9)
    with pytest.raises(LLMRateLimitError, match="busy"):
        await with_retries(operation, retries=retries, deadline=Deadline.never())
    assert len(calls) == retries + 1


# A-069 C23
@pytest.mark.parametrize("error", [LLMAuthenticationError(), LLMError(), InvalidInputError(), KeyError("x")])
async def test_permanent_errors_are_not_retried(error: Exception) -> None:
    operation, calls = failing(error)
    with pytest.raises(type(error)):
        await with_retries(operation, retries=3, deadline=Deadline.never())
    assert len(calls) == 1


# C23
async def test_retry_without_retry_after_uses_backoff() -> None:
    operation, calls = failing(LLMTimeoutError())
    assert await with_retries(operation, retries=1, deadline=Deadline.after(10)) == "done"
    assert len(calls) == 2


# C23
async def test_retry_after_beyond_deadline_raises_immediately() -> None:
    operation, calls = failing(LLMRateLimitError("busy", retry_after_s=3600))
    async with asyncio.timeout(5):  # far less than the wait
        with pytest.raises(LLMRateLimitError) as caught:
            await with_retries(operation, retries=3, deadline=Deadline.after(60))
    assert caught.value.retry_after_s == 3600
    assert len(calls) == 1


async def test_deadline_during_backoff_raises_last_error() -> None:
    operation, calls = failing(*[LLMTimeoutError("slow")] * 9)
    with pytest.raises(LLMTimeoutError, match="slow"):
        await with_retries(operation, retries=9, deadline=Deadline.after(0.1))
    assert len(calls) == 1


async def test_deadline_during_later_attempt_raises_last_error() -> None:
    attempts: list[int] = []

    async def operation() -> None:
        attempts.append(len(attempts))
        if len(attempts) == 1:  # ends on its own
            raise LLMTimeoutError("slow")
        await asyncio.sleep(60)

    with pytest.raises(LLMTimeoutError, match="slow"):
        await with_retries(operation, retries=3, deadline=Deadline.after(2))
    assert attempts == [0, 1]


async def test_attempt_after_deadline_is_not_started() -> None:
    operation, calls = failing()
    with pytest.raises(DeadlineExceededError):
        await with_retries(operation, retries=3, deadline=Deadline.after(0))
    assert not calls


async def test_caller_timeout_passes_through() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await with_retries(lambda: asyncio.sleep(60), retries=3, deadline=Deadline.after(60))


async def test_retry_budget_limits_retries_to_a_tenth_of_calls() -> None:  # fault 12
    budget = RetryBudget(most=20)
    calls = 0
    for _ in range(500):
        operation, made = failing(*[NOW] * 9)
        with pytest.raises(LLMRateLimitError):
            await with_retries(operation, retries=3, deadline=Deadline.never(), budget=budget)
        calls += len(made)
    assert 500 < calls <= 500 * 1.1 + 20


async def test_saved_retry_budget_is_spent_first() -> None:
    budget = RetryBudget(most=3)
    made = []
    for _ in range(3):
        operation, calls = failing(*[NOW] * 9)
        with pytest.raises(LLMRateLimitError):
            await with_retries(operation, retries=2, deadline=Deadline.never(), budget=budget)
        made.append(len(calls))
    assert made == [3, 2, 1]


async def test_last_attempt_spends_no_retry_budget() -> None:
    budget = RetryBudget(ratio=0.0, most=4)
    for _ in range(2):
        operation, calls = failing(*[NOW] * 9)
        with pytest.raises(LLMRateLimitError):
            await with_retries(operation, retries=2, deadline=Deadline.never(), budget=budget)
        assert len(calls) == 3
