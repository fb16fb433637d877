"""Lines that a function writes to stdout and stderr, kept within bounds."""

import asyncio
import os
from collections import deque
from collections.abc import Callable

KEPT_LINES = 10_000
MAX_LINE_BYTES = 1024 * 1024
"""A longer line is cut into several, as CloudWatch Logs does with its events."""
_READ_BYTES = 64 * 1024


class ProcessOutput:
    """Collects the lines of all processes of a function.

    Args:
        on_line: Called with each line.
    """

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        """The last lines, oldest first, without their line ends."""
        self._on_line = on_line
        self._arrival = asyncio.Event()

    @property
    def text(self) -> str:
        """The kept lines as one text."""
        return "\n".join(self.lines)

    def add(self, line: bytes) -> None:
        """Add a line."""
        decoded = line.decode("utf-8", "replace")
        self.lines.append(decoded)
        if self._on_line is not None:
            self._on_line(decoded)
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()

    async def wait_for(self, text: str) -> str:
        """Wait for a line that contains ``text``; return the first kept one."""
        while True:
            arrival = self._arrival
            for line in self.lines:
                if text in line:
                    return line
            await arrival.wait()


class OutputPipe:
    """Pipe of one process, read by the running event loop as it fills.

    Args:
        output: Receives the lines.

    Attributes:
        write_end: File descriptor for the process; ``started`` closes it here.
    """

    def __init__(self, output: ProcessOutput) -> None:
        self._output = output
        self._rest = b""
        self._read_end, self.write_end = os.pipe()
        self._is_open = True
        os.set_blocking(self._read_end, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self.catch_up)

    def started(self) -> None:
        """Close the write end: the process has its own copy."""
        os.close(self.write_end)

    def catch_up(self) -> None:
        """Read what the process has written so far, such as before a response that has just arrived."""
        while self._is_open:
            try:
                data = os.read(self._read_end, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._end()
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._output.add(line)
            if len(self._rest) > MAX_LINE_BYTES:
                self._output.add(self._rest)
                self._rest = b""

    def close(self) -> None:
        """Read the rest and close, even while another process holds the write end."""
        self.catch_up()
        if self._is_open:
            self._end()

    def _end(self) -> None:
        self._is_open = False
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        if self._rest:
            self._output.add(self._rest)
