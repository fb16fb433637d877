"""Incremental parser of the messages of a PostgreSQL client.

https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

SSL_REQUEST = 80877103
GSS_ENCRYPTION_REQUEST = 80877104
CANCEL_REQUEST = 80877102
MAX_STARTUP_BYTES = 10_000
"""PostgreSQL's own limit for a startup packet, its length included."""

MessageKind: TypeAlias = Literal["Query", "Parse", "Bind", "FunctionCall", "Sync", "other"]

_KINDS: dict[int, MessageKind] = {
    ord("Q"): "Query",
    ord("P"): "Parse",
    ord("B"): "Bind",
    ord("F"): "FunctionCall",
    ord("S"): "Sync",
}
_HEADER_BYTES = 5
_NO_PROCESS = 1 << 30
"""Above any process number of Linux (2**22) and macOS."""
_READ_BYTES: dict[MessageKind, int] = {
    "Query": 64 * 1024,  # texts far above any limit may be truncated
    "Parse": 64 * 1024,
    "Bind": 256,
    "FunctionCall": 0,
    "Sync": 0,
    "other": 0,
}


@dataclass(frozen=True, slots=True)
class StartupPacket:
    """The first packet of a connection, or an encryption request before it.

    ``code`` is one of the request codes above, or the protocol's version: major << 16 | minor.
    """

    code: int
    parameters: dict[str, str] = field(default_factory=dict)
    size: int = 0
    """Bytes of the packet."""

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor, if this is a startup message."""
        return self.code >> 16, self.code & 0xFFFF


@dataclass(frozen=True, slots=True)
class Message:
    """A message after the startup."""

    kind: MessageKind
    name: str = ""
    """Name of the prepared statement (Parse) or portal (Bind) that it creates; empty for the unnamed one."""
    text: bytes = b""
    """The statement's (Query, Parse), without its terminating zero."""


def read_startup(data: bytes) -> StartupPacket | None:
    """Return the packet at the start of the data received so far, or None if it is incomplete.

    Raises:
        ValueError: The data is not such a packet, e.g. TLS without negotiation.
    """
    if len(data) < 4:
        return None
    size = int.from_bytes(data[:4], "big")
    if not 8 <= size <= MAX_STARTUP_BYTES:
        raise ValueError(f"A startup packet of {size} bytes.")
    if len(data) < size:
        return None
    code = int.from_bytes(data[4:8], "big")
    if code in (SSL_REQUEST, GSS_ENCRYPTION_REQUEST, CANCEL_REQUEST):
        return StartupPacket(code, size=size)
    words = [word.decode(errors="replace") for word in data[8:size].split(b"\0")]
    named = zip(words[::2], words[1::2], strict=False)
    return StartupPacket(code, {name: value for name, value in named if name}, size)


class MessageReader:
    """Splits a stream into messages; stores only the beginning of those it reads, and drops the others."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that this data completes, of the kinds that are read."""
        self._buffer += data
        found: list[Message] = []
        while self._skipped() and len(self._buffer) >= _HEADER_BYTES:
            kind = _KINDS.get(self._buffer[0], "other")
            size = max(int.from_bytes(self._buffer[1:_HEADER_BYTES], "big") - 4, 0)
            end = _HEADER_BYTES + min(size, _READ_BYTES[kind])
            if len(self._buffer) < end:
                break
            found.append(_message(kind, bytes(self._buffer[_HEADER_BYTES:end])))
            self._skip = _HEADER_BYTES + size
        return found

    def _skipped(self) -> bool:
        """Drop the rest of the last message; return whether the buffer starts with a new one."""
        gone = min(self._skip, len(self._buffer))
        del self._buffer[:gone]
        self._skip -= gone
        return self._skip == 0


def _message(kind: MessageKind, body: bytes) -> Message:
    if kind == "Query":
        return Message(kind, text=body.partition(b"\0")[0])
    if kind == "Parse":
        name, _, rest = body.partition(b"\0")
        return Message(kind, name.decode(errors="replace"), rest.partition(b"\0")[0])
    if kind == "Bind":
        return Message(kind, body.partition(b"\0")[0].decode(errors="replace"))
    return Message(kind)


def swapped_process(data: bytes, at: int) -> bytes:
    """Return the data with the process number at this offset turned into one that no process has, or back."""
    number = int.from_bytes(data[at : at + 4]) ^ _NO_PROCESS
    return data[:at] + number.to_bytes(4) + data[at + 4 :]


def own_key(data: bytes) -> tuple[bytes, bytes | None]:
    """Replace the process number of a server's BackendKeyData.

    Args:
        data: What the server sent since the connection began, from the start of a message.

    Returns:
        What to pass on, and what to wait for the rest of; None after the key, or an error in its place.
    """
    at = 0
    while len(data) >= at + _HEADER_BYTES:
        end = at + 1 + int.from_bytes(data[at + 1 : at + _HEADER_BYTES])
        if len(data) < end:
            break
        if data[at : at + 1] == b"K":
            return swapped_process(data, at + _HEADER_BYTES), None
        if data[at : at + 1] == b"E":
            return data, None
        at = end
    return data[:at], data[at:]
