"""SIGTERM: an end of the process between two steps of the app if it can be had, else in the middle of one."""

import signal
from types import FrameType

from vectorforge.runtime.event_loop import begin_shutdown, event_loop, event_loop_is_running

_PATIENCE_S = 0.06
"""For the event loop to come by; one that is blocked for longer is interrupted."""


class Terminated(SystemExit):
    """SIGTERM came."""


class Termination:
    """Raises :class:`Terminated` in the main thread, once, after SIGTERM."""

    def __init__(self) -> None:
        self._requested = False
        self._raised = False

    def install(self) -> None:
        """Handle SIGTERM from now on; only the main thread may call this."""
        signal.signal(signal.SIGTERM, self._handle)

    def check(self) -> None:
        """Raise if SIGTERM came and was not told yet; called where the process is about to wait.

        A callback that came in the loop's last iteration would be run by the next invocation only.
        """
        if self._requested:
            self._raise()

    def _handle(self, _signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._requested = True
        begin_shutdown()
        if not event_loop_is_running():
            self._raise()
        # Between two steps of its tasks, not inside whatever one of them is doing; unless that one blocks.
        signal.signal(signal.SIGALRM, self._handle_alarm)
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)
        event_loop().call_soon_threadsafe(self._raise)

    def _handle_alarm(self, _signal: int, _frame: FrameType | None) -> None:
        self._raise()

    def _raise(self) -> None:
        if self._raised:
            return
        self._raised = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Terminated(0)
