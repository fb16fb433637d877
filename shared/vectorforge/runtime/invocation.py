"""The invocation at hand, and whether this process can stream its response.

Apart from the client so that a handler module can be imported where awslambdaric is not installed.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass
class Invocation:
    """One invocation, as far as its response is concerned."""

    runtime_api: str
    """``host:port`` of the Runtime API."""
    request_id: str
    invocation_id: str | None
    """Sent back with the response, so that a late one is not taken for another invocation's."""
    answered: bool = False
    """True from the first byte of a response on: nothing else may be posted."""


class StreamingClient(Protocol):
    """A Runtime API client that leaves room for a streamed response."""

    @property
    def invocation(self) -> Invocation | None:
        """The invocation that the last ``/next`` returned; None before the first."""


_client: StreamingClient | None = None


def use_client(client: StreamingClient) -> None:
    """Name the client whose loop this process runs."""
    global _client
    _client = client


def can_stream() -> bool:
    """Whether the Runtime API client of this process can stream, so that a StreamingHandler works in it."""
    return _client is not None


def current_invocation() -> Invocation | None:
    """The invocation at hand; None where there is none or none that can be streamed."""
    return None if _client is None else _client.invocation
