"""API keys issued by `vectorforge keys`: looked up in the database and cached for a short time."""

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from vectorforge.db.repositories.api_key_repo import ActiveApiKey, digest_of, is_issued_key
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.types import Principal

Value = TypeVar("Value")

REMEMBERED_S = 30.0
"""Seconds for which a key, valid or not, is not looked up again. The request's first transaction checks its
validity in any case (``db.tenant_database.KeyCheck``)."""
MAX_KEYS = 10_000
MAX_WRONG_KEYS = 1_000
"""Separate bound, so that unknown keys do not evict valid ones."""
MAX_LOOK_UPS = 2
"""Concurrent look-ups: a flood of unknown keys must not exhaust the connections."""


class IssuedKeys:
    """Authenticates issued keys. Belongs to one event loop.

    Every key that is not cached takes the same time, valid or not: one look-up by its SHA-256.

    Args:
        look_up: Finds the active key with this SHA-256.
        clock: Monotonic seconds.
        max_wait_s: Longest time for a look-up, including the wait for others.
    """

    def __init__(
        self,
        look_up: Callable[[bytes], Awaitable[ActiveApiKey | None]],
        *,
        clock: Callable[[], float] = time.monotonic,
        max_wait_s: float = 5.0,
    ) -> None:
        self._max_wait_s = max_wait_s
        self._look_up = look_up
        self._clock = clock
        self._looking = asyncio.Semaphore(MAX_LOOK_UPS)
        self._good: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._wrong: OrderedDict[bytes, float] = OrderedDict()

    async def find(self, key: str) -> Principal | None:
        """Return the principal of a key, or None if it is unknown.

        Raises:
            DatabaseUnavailableError: The key is not cached and cannot be looked up in time.
        """
        if not is_issued_key(key):
            return None
        digest = digest_of(key)
        remembered, principal = self._remembered(digest)
        if remembered:
            return principal
        try:
            async with asyncio.timeout(self._max_wait_s), self._looking:
                remembered, principal = self._remembered(digest)  # by an earlier request
                if remembered:
                    return principal
                return self._remember(digest, await self._look_up(digest))
        except TimeoutError:
            raise DatabaseUnavailableError("The key could not be looked up in time.") from None

    def forget(self, key_id: str) -> None:
        """Drop a revoked or rotated key from the cache."""
        name = credential_of(key_id)
        digests = [digest for digest, (_, whose) in self._good.items() if whose.credential == name]
        for digest in digests:
            del self._good[digest]

    def _remembered(self, digest: bytes) -> tuple[bool, Principal | None]:
        now = self._clock()
        if (cached := self._good.get(digest)) is not None and now < cached[0]:
            return True, cached[1]
        return now < self._wrong.get(digest, 0.0), None

    def _remember(self, digest: bytes, stored: ActiveApiKey | None) -> Principal | None:
        # An index compares byte by byte; this does not, though what is compared is a hash.
        if stored is None or not hmac.compare_digest(stored.digest, digest):
            self._good.pop(digest, None)
            _put(self._wrong, digest, self._clock() + REMEMBERED_S, MAX_WRONG_KEYS)
            return None
        left_s = REMEMBERED_S if stored.seconds_left is None else min(REMEMBERED_S, stored.seconds_left)
        principal = Principal(stored.tenant_id, stored.scope.included, credential_of(stored.id))
        remembered = replace(principal, remembered_keys=frozenset({stored.id}))
        self._wrong.pop(digest, None)
        _put(self._good, digest, (self._clock() + left_s, remembered), MAX_KEYS)
        return principal


def credential_of(key_id: str) -> str:
    """Return the name of a key in logs."""
    return f"vf_{key_id}"


def _put(remembered: "OrderedDict[bytes, Value]", digest: bytes, value: Value, most: int) -> None:
    """Cache a value as the newest, and evict the oldest above the limit."""
    remembered[digest] = value
    remembered.move_to_end(digest)
    if len(remembered) > most:
        remembered.popitem(last=False)
