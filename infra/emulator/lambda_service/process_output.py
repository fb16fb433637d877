"""Lines that a function writes to stdout and stderr, kept within bounds."""

import asyncio
from collections import deque
from collections.abc import Callable

KEPT_LINES = 10_000
MAX_LINE_BYTES = 1024 * 1024
"""A longer line is cut into several, as CloudWatch Logs does with its events."""
_READ_BYTES = 64 * 1024


class ProcessOutput:
    """Collects lines of any number of streams.

    Args:
        on_line: Called with each line.
    """

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        """The last lines of both streams, oldest first, without their line ends."""
        self._on_line = on_line
        self._arrival = asyncio.Event()

    @property
    def text(self) -> str:
        """The kept lines."""
        return "\n".join(self.lines)

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Take lines from a stream until its end."""
        rest = b""
        while data := await stream.read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._add(line)
            if len(rest) > MAX_LINE_BYTES:
                self._add(rest)
                rest = b""
        if rest:
            self._add(rest)

    async def wait_for(self, text: str) -> str:
        """The first kept line that contains ``text``, when there is one."""
        while True:
            arrival = self._arrival
            for line in self.lines:
                if text in line:
                    return line
            await arrival.wait()

    def _add(self, line: bytes) -> None:
        decoded = line.decode("utf-8", "replace")
        self.lines.append(decoded)
        if self._on_line is not None:
            self._on_line(decoded)
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()
