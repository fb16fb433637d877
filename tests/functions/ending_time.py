"""Seconds from SIGTERM to the end of a process, without those in which other work had its CPU."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_SAMPLE_S = 0.005


async def seconds_to_end(pid: int, exit_code: "asyncio.Future[int]") -> float:
    """Send SIGTERM to a process, wait for its exit with 0, and return the seconds that it took itself.

    How long the process, or the test that notices its end, waited for a CPU depends on the machine's other
    work. Linux measures it (https://docs.kernel.org/scheduler/sched-stats.html), and it is subtracted.
    """
    own, before = _waited_s(os.getpid()), _waited_s(pid)
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    waited = before
    async with asyncio.timeout(20):
        while not exit_code.done():
            waited = max(waited, _waited_s(pid))
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(exit_code), _SAMPLE_S)
    seconds = time.monotonic() - began
    assert exit_code.result() == 0
    return seconds - (waited - before) - (_waited_s(os.getpid()) - own)


def _waited_s(pid: int) -> float:
    """Return the seconds for which a process's main thread waited for a CPU so far; 0 if not known."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
