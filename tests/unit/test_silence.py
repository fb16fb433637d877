"""The limit on a stream's silence."""

import asyncio
from contextlib import closing

import pytest

from vectorforge.llm.attempts import SilenceLimit


async def test_await_over_silence_limit_times_out() -> None:
    with closing(SilenceLimit()) as limit:
        limit.s = 0.05
        with pytest.raises(TimeoutError), limit:
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_silence_limit_applies_to_each_await_separately() -> None:
    with closing(SilenceLimit()) as limit:
        limit.s = 0.2
        for _ in range(4):
            with limit:
                await asyncio.sleep(0.1)
        await asyncio.sleep(0.4)
        with limit:
            await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError), limit:
            await asyncio.Event().wait()


async def test_silence_limit_can_be_shortened() -> None:
    with closing(SilenceLimit()) as limit:
        limit.s = 600.0
        with limit:
            await asyncio.sleep(0)
        limit.s = 0.05
        with pytest.raises(TimeoutError), limit:
            await asyncio.Event().wait()
        limit.s = -1.0
        with pytest.raises(TimeoutError), limit:
            await asyncio.Event().wait()


async def test_external_cancellation_stays_cancelled_error() -> None:
    waiting = asyncio.Event()

    async def wait() -> None:
        with closing(SilenceLimit()) as limit:
            limit.s = 600.0
            with limit:
                waiting.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_closed_silence_limit_leaves_no_timer() -> None:
    with closing(SilenceLimit()) as limit:
        limit.s = 0.05
        with limit:
            await asyncio.sleep(0)
    await asyncio.sleep(0.1)  # a timer that rang now would cancel this
