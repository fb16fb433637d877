"""What a function's processes write: kept in a file, and collected for each invocation."""

import os
import selectors
import threading
from pathlib import Path
from typing import IO

_READ_BYTES = 64 * 1024
_POLL_S = 0.5


class ProcessOutput:
    """Collects what is written until it is asked for.

    Args:
        file: Gets everything at its end; None keeps it nowhere.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._collected: list[bytes] = []
        self._lock = threading.Lock()

    def follow(self, stream: IO[bytes] | None) -> "Followed":
        """Read a process's pipe as it fills.

        Raises:
            ValueError: There is no pipe.
        """
        if stream is None:
            raise ValueError("The process has no pipe.")
        return Followed(stream, self)

    def add(self, data: bytes) -> None:
        """Add to what was written."""
        with self._lock:
            self._collected.append(data)
            if self._file is not None:
                with self._file.open("ab") as opened:
                    opened.write(data)

    def take(self) -> str:
        """What was written since it was last taken."""
        with self._lock:
            taken, self._collected = b"".join(self._collected), []
        return taken.decode(errors="replace")


class Followed:
    """One pipe. What a process wrote before it answered is in the pipe when the answer arrives."""

    def __init__(self, stream: IO[bytes], output: ProcessOutput) -> None:
        self._stream = stream
        self._output = output
        self._lock = threading.Lock()
        self._ended = False
        os.set_blocking(stream.fileno(), False)
        threading.Thread(target=self._follow, name="lambda-output", daemon=True).start()

    def catch_up(self) -> None:
        """Read what is there now."""
        with self._lock:
            while not self._ended:
                try:
                    data = os.read(self._stream.fileno(), _READ_BYTES)
                except BlockingIOError:
                    return
                if data:
                    self._output.add(data)
                else:
                    self._end()

    def close(self) -> None:
        """Read the rest, and close it though a grandchild may hold the other end."""
        self.catch_up()
        with self._lock:
            self._end()

    def _follow(self) -> None:
        with selectors.DefaultSelector() as selector:
            with self._lock:
                if self._ended:
                    return
                selector.register(self._stream, selectors.EVENT_READ)
            while not self._ended:
                if selector.select(_POLL_S):
                    self.catch_up()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._stream.close()
