"""The time a process has to end.

Lambda sends SIGTERM to the runtime of a function that has extensions, and SIGKILL 300 ms later where one is
external, 500 ms later where all are internal. The 2 s of its shutdown phase are the extensions' own. Without
extensions there is no SIGTERM.

https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html#runtimes-lifecycle-shutdown
"""

import time

_USED_S = 0.25  # of 0.3: waits end late on a busy CPU
_ends_at: float | None = None


def begin_shutdown() -> None:
    """Start the clock, at SIGTERM."""
    global _ends_at
    _ends_at = time.monotonic() + _USED_S


def shutdown_remaining_s() -> float:
    """Return the seconds left, at least 0; all of them if no SIGTERM came."""
    return _USED_S if _ends_at is None else max(_ends_at - time.monotonic(), 0.0)
