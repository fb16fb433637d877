"""How long a stream may say nothing."""

import asyncio
from types import TracebackType


class SilenceLimit:
    """Limits each of many awaits, one after another, by one timer that is pushed on.

    ``asyncio.timeout`` would set and cancel a timer for each of a stream's texts. As with it, the await is
    cancelled and ``TimeoutError`` raised. Used as ``limit.s = 10`` and ``with limit:`` around each await;
    other awaits between them are not limited, and may be in other tasks. To be closed at the end.
    """

    def __init__(self) -> None:
        self.s = 0.0
        """Longest await from now on, in seconds; 0 or less ends it as soon as it waits."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._due: float | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._expired = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101 - coroutines run in tasks here
        self._cancelling = self._task.cancelling()
        self._due = due = self._loop.time() + self.s
        if self._timer is None or due < self._timer_at:
            self._set(due)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._due = None
        if not self._expired or self._task is None:
            return
        self._expired = False
        # Somebody else may have cancelled the task too:
        # https://docs.python.org/3/library/asyncio-task.html#asyncio.Task.uncancel
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from exc

    def close(self) -> None:
        """Let the timer go."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, at: float) -> None:
        self.close()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._due is None or self._task is None:
            return  # nobody waits; whoever waits next sets it again
        if self._due > self._loop.time():
            self._set(self._due)
        else:
            self._expired = True
            self._task.cancel()
