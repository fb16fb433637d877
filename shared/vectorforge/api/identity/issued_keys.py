"""Keys that were made with `vectorforge keys`: looked up in the database, and remembered for a moment."""

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from vectorforge.db.repositories.api_key_repo import FoundApiKey, digest_of, is_issued_key
from vectorforge.errors import DatabaseUnavailableError
from vectorforge.types import Principal

Value = TypeVar("Value")

REMEMBERED_S = 30.0
"""For how long a key is not looked up again, nor one that is none. Whether it is still good is asked all the
same, in the request's first transaction (``db.key_check``)."""
MAX_KEYS = 10_000
MAX_WRONG_KEYS = 1_000
"""Anybody can send wrong keys, so these push out none that are good."""
MAX_LOOK_UPS = 2
"""At a time: a storm of wrong keys must not take the connections from those who are in."""


class IssuedKeys:
    """Finds out whose key it is. Belongs to one event loop.

    What takes time is the same for every key that is not remembered, good or not: one look-up by its SHA-256.

    Args:
        look_up: Finds the key in use that has this SHA-256.
        clock: Seconds that only grow.
        max_wait_s: Longest time for a look-up, with the wait for those before it.
    """

    def __init__(
        self,
        look_up: Callable[[bytes], Awaitable[FoundApiKey | None]],
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
        """Whose key it is; None when it is nobody's.

        Raises:
            DatabaseUnavailableError: The key is not remembered, and cannot be looked up in time.
        """
        if not is_issued_key(key):
            return None
        digest = digest_of(key)
        remembered, principal = self._remembered(digest)
        if remembered:
            return principal
        try:
            async with asyncio.timeout(self._max_wait_s), self._looking:
                remembered, principal = self._remembered(digest)  # by who was here before
                if remembered:
                    return principal
                return self._remember(digest, await self._look_up(digest))
        except TimeoutError:
            raise DatabaseUnavailableError("The key could not be looked up in time.") from None

    def forget(self, key_id: str) -> None:
        """Look the key up when it comes next: it was revoked or rotated."""
        name = credential_of(key_id)
        found = [digest for digest, (_, whose) in self._good.items() if whose.credential == name]
        for digest in found:
            del self._good[digest]

    def _remembered(self, digest: bytes) -> tuple[bool, Principal | None]:
        now = self._clock()
        if (found := self._good.get(digest)) is not None and now < found[0]:
            return True, found[1]
        return now < self._wrong.get(digest, 0.0), None

    def _remember(self, digest: bytes, found: FoundApiKey | None) -> Principal | None:
        # An index compares byte by byte; this does not, though what is compared is a hash.
        if found is None or not hmac.compare_digest(found.digest, digest):
            self._good.pop(digest, None)
            _put(self._wrong, digest, self._clock() + REMEMBERED_S, MAX_WRONG_KEYS)
            return None
        left_s = REMEMBERED_S if found.seconds_left is None else min(REMEMBERED_S, found.seconds_left)
        principal = Principal(found.tenant_id, found.scope.included, credential_of(found.id))
        remembered = replace(principal, remembered_keys=frozenset({found.id}))
        self._wrong.pop(digest, None)
        _put(self._good, digest, (self._clock() + left_s, remembered), MAX_KEYS)
        return principal


def credential_of(key_id: str) -> str:
    """Return the name of a key in logs."""
    return f"vf_{key_id}"


def _put(remembered: "OrderedDict[bytes, Value]", digest: bytes, value: Value, most: int) -> None:
    """Remember it as the newest, and forget the oldest when there are too many."""
    remembered[digest] = value
    remembered.move_to_end(digest)
    if len(remembered) > most:
        remembered.popitem(last=False)
