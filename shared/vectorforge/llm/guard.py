"""A vendor's steps: limited in time, and their exceptions turned into ours."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from vectorforge.errors import LLMError, VectorForgeError
from vectorforge.llm import failures
from vectorforge.llm.silence import SilenceLimit
from vectorforge.llm.types import Completion

T = TypeVar("T")


class VendorGuard:
    """Stands between a provider's steps and whoever awaits them.

    Args:
        name: Gives the provider's name, for the errors.
        map_error: Our error for an exception that is none of ours.
        safe_cause: The exception with nothing secret in its text.
    """

    def __init__(
        self,
        name: Callable[[], str],
        map_error: Callable[[Exception], LLMError],
        safe_cause: Callable[[Exception], Exception],
    ) -> None:
        self._name = name
        self._map_error = map_error
        self._safe_cause = safe_cause

    async def step(self, step: Awaitable[T], timeout_s: float) -> T:
        """Await a step for at most ``timeout_s``.

        Raises:
            VectorForgeError: What the vendor did.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await step
        except VectorForgeError:
            raise
        except Exception as exc:  # noqa: BLE001 - a vendor's answer may raise anything; it is mapped and raised
            error, cause = self._ours(exc)
            raise error from cause

    async def first(self, stream: AsyncGenerator[str | Completion, None]) -> str | Completion:
        """The first item of a stream; to be awaited within a ``step``."""
        item = await anext(stream, None)
        if item is None:  # the vendors' SDKs take such an end for success
            raise failures.broken_stream(self._name())
        return item

    async def following(
        self, stream: AsyncGenerator[str | Completion, None], limit: SilenceLimit
    ) -> str | Completion:
        """The next item of a stream of which somebody has seen a part: no error is retryable.

        Raises:
            VectorForgeError: What the vendor did; a stream that merely ends is broken.
        """
        try:
            with limit:
                return await anext(stream)
        except StopAsyncIteration:
            error: VectorForgeError = failures.broken_stream(self._name())
            cause: BaseException | None = None
        except Exception as exc:  # noqa: BLE001 - as above
            error, cause = self._ours(exc)
        error.retryable = False
        raise error from cause

    def _ours(self, exc: Exception) -> tuple[VectorForgeError, BaseException | None]:
        """Our error for an exception, and its cause."""
        if isinstance(exc, VectorForgeError):
            return exc, exc.__cause__
        if isinstance(exc, TimeoutError):
            return failures.timed_out(self._name()), exc
        return self._map_error(exc), self._safe_cause(exc)
