"""Work on long texts does not block the event loop."""

import asyncio
import threading

import pytest

from vectorforge.deadline import off_event_loop


async def test_work_on_long_text_runs_off_the_event_loop() -> None:
    """It waits for work on the event loop, so it would deadlock there."""
    loop_goes_on = threading.Event()
    asyncio.get_running_loop().call_soon(loop_goes_on.set)
    assert await off_event_loop(1_000_000, lambda: loop_goes_on.wait(timeout=10))


async def test_work_on_short_text_runs_on_the_event_loop() -> None:
    assert await off_event_loop(1_000, threading.current_thread) is threading.current_thread()


async def test_work_exception_is_raised_to_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await off_event_loop(1_000_000, lambda: 1 // 0)
