"""Time limit of a request; every timeout and retry is cut to it."""

import time
from dataclasses import dataclass

from vectorforge.errors import DeadlineExceededError


@dataclass(frozen=True, slots=True)
class Deadline:
    """Point in time on the monotonic clock."""

    at: float
    """Seconds of ``time.monotonic()``; ``inf`` for none."""

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline this many seconds from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def never(cls) -> "Deadline":
        """Return a deadline without limit."""
        return cls(float("inf"))

    def remaining_s(self) -> float:
        """Return the seconds left; negative when it has passed."""
        return self.at - time.monotonic()

    def clamp(self, seconds: float) -> float:
        """Return the smaller of ``seconds`` and the time left.

        Raises:
            DeadlineExceededError: No time is left.
        """
        remaining = self.remaining_s()
        if remaining <= 0:
            raise DeadlineExceededError
        return min(seconds, remaining)
