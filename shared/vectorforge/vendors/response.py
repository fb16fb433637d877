"""Unread response of a vendor, by HTTP or through an SDK."""

from abc import ABC, abstractmethod

_MAX_ANSWER_BYTES = 16 * 1024 * 1024


class VendorResponse(ABC):
    """Unread response with a status of 2xx; close it."""

    __slots__ = ()

    @abstractmethod
    async def chunk(self) -> bytes:
        """Return the next bytes of the body; empty at its end.

        Raises:
            ConnectionError: The connection broke before its end.
        """

    @property
    @abstractmethod
    def is_read(self) -> bool:
        """True once the body has been read, so that the connection can be reused."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release the connection: reuse it if the body was read, else disconnect.

        A vendor that detects a disconnect stops generating, and charging.
        """

    async def read(self, limit: int = _MAX_ANSWER_BYTES) -> bytes:
        """Return the whole body.

        Args:
            limit: Maximum number of bytes.

        Raises:
            ConnectionError: The connection broke before its end.
            ValueError: The body is longer.
        """
        body = await self.chunk()
        if self.is_read:
            return _within(limit, body)
        chunks, size = [body], len(body)
        while chunk := await self.chunk():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                break
        return _within(limit, b"".join(chunks))


def _within(limit: int, body: bytes) -> bytes:
    if len(body) > limit:
        raise ValueError(f"the response has more than {limit} bytes")
    return body
