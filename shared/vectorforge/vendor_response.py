"""A vendor's answer whose body has not been read yet, whatever transport brought it."""

from abc import ABC, abstractmethod

_MAX_ANSWER_BYTES = 16 * 1024 * 1024


class VendorResponse(ABC):
    """An answer with a status of 2xx; to be closed."""

    __slots__ = ()

    @abstractmethod
    async def chunk(self) -> bytes:
        """Return the part of the body that has arrived, or the next to arrive; empty at its end.

        Raises:
            ConnectionError: The connection broke before its end.
        """

    @property
    @abstractmethod
    def is_read(self) -> bool:
        """Whether the end of the body has been read, so that the connection can be used again."""

    @abstractmethod
    async def aclose(self) -> None:
        """Release the connection: reuse it if the body was read, cut it at once if it was not.

        A vendor that sees its reader leave stops writing, and charging.
        """

    async def read(self, limit: int = _MAX_ANSWER_BYTES) -> bytes:
        """Return the whole body.

        Args:
            limit: Bytes at most.

        Raises:
            ConnectionError: The connection broke before its end.
            ValueError: It is longer.
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
        raise ValueError(f"the answer has more than {limit} bytes")
    return body
