"""The public keys of an identity provider (JWKS, RFC 7517), fetched when they are needed.

Only the address of the settings is asked; no redirect is followed, and nothing in a token names another.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vectorforge.errors import IdentityProviderUnavailableError
from vectorforge.vendors.failures import VendorConnectionError, VendorStatusError, VendorTimeoutError

if TYPE_CHECKING:
    from jwt import PyJWK

    from vectorforge.vendors.http import VendorResponse

logger = logging.getLogger(__name__)

MAX_AGE_S = 600.0
"""After which the keys are fetched again."""
STALE_S = 3600.0
"""For how much longer they are good for while they cannot be fetched."""
MIN_INTERVAL_S = 60.0
"""Between two fetches because of a key id that is not there: anybody can send tokens with such ids."""
RETRY_S = 5.0
"""Between two fetches after one that failed, while there are no good keys."""
MAX_BYTES = 256 * 1024
MAX_KEYS = 100
TIMEOUT_S = 5.0
"""Longest time for a fetch."""
MIN_RSA_BITS = 2048
"""RFC 7518, section 3.3."""

_ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
"""By type and curve. A key has one algorithm whatever a token says, and none is symmetric."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, and the only algorithm that it is used with."""

    key: "PyJWK"
    algorithm: str
    """RS256 | ES256 | EdDSA"""


class KeySet:
    """The keys at one address. Belongs to one event loop.

    Args:
        url: Of the JWKS.
        clock: Seconds that only grow.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._fetching = asyncio.Lock()
        self._keys: dict[str, VerificationKey] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None

    async def find(self, key_id: str) -> VerificationKey | None:
        """The key of this id; None when the provider has none.

        Raises:
            IdentityProviderUnavailableError: There are no keys that are young enough, and none can be had.
        """
        if self._due(key_id) and not (self._fetching.locked() and self._is_good(key_id)):
            async with self._fetching:
                if self._due(key_id):  # who was here before may have fetched them
                    await self._fetch()
        if self._older_than(MAX_AGE_S + STALE_S):
            raise IdentityProviderUnavailableError
        return self._keys.get(key_id)

    def _due(self, key_id: str) -> bool:
        since_try = float("inf") if self._tried_at is None else self._clock() - self._tried_at
        if self._older_than(MAX_AGE_S):
            return since_try >= RETRY_S
        return key_id not in self._keys and since_try >= MIN_INTERVAL_S

    def _is_good(self, key_id: str) -> bool:
        """Whether the key is there: who has it need not wait for younger ones that somebody else fetches."""
        return key_id in self._keys and not self._older_than(MAX_AGE_S + STALE_S)

    def _older_than(self, age_s: float) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > age_s

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                document = await self._document()
        # what an HTTP client, a JSON parser and a stranger's document come up with
        except (ConnectionError, OSError, TimeoutError, ValueError) as exc:
            logger.warning("The keys of the identity provider cannot be fetched: %s", type(exc).__name__)
            return
        finally:
            self._tried_at = self._clock()  # when it ended: those who waited must not try again, one by one
        self._keys = await asyncio.to_thread(read_keys, document)
        self._fetched_at = self._clock()

    async def _document(self) -> Any:
        sessions = await asyncio.to_thread(_import_sessions)
        try:
            response: VendorResponse = await sessions.session_for(self).send(
                "GET", self._url, None, {}, TIMEOUT_S
            )
            async with aclosing(response):
                return json.loads(await response.read(MAX_BYTES))
        except RecursionError:
            raise ValueError("nested too deeply") from None
        # a status that is not 2xx is one of them, and so is a redirect
        except (VendorConnectionError, VendorStatusError, VendorTimeoutError) as exc:
            raise ConnectionError(str(exc)) from None
        finally:
            await sessions.give_back(self)  # the next fetch is minutes away


def read_keys(document: Any) -> dict[str, VerificationKey]:
    """The keys of a JWKS by their ids, as far as they are of use: the others are left out.

    Left out are keys without an id, with one that came before, of other types than RSA (2,048 bits at
    least), P-256 and Ed25519, for something else than signatures, and all after the hundredth.
    """
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    listed = document.get("keys") if isinstance(document, dict) else None
    found: dict[str, VerificationKey] = {}
    for entry in listed[:MAX_KEYS] if isinstance(listed, list) else []:
        algorithm = _algorithm(entry)
        if algorithm is None or entry["kid"] in found:
            continue
        try:
            key = PyJWK.from_dict(entry, algorithm)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
        if algorithm != "RS256" or key.key.key_size >= MIN_RSA_BITS:
            found[entry["kid"]] = VerificationKey(key, algorithm)
    return found


def _algorithm(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("kid"), str):
        return None
    kind, curve = entry.get("kty"), entry.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return None
    algorithm = _ALGORITHMS.get((kind, curve))
    usable = (
        entry.get("use", "sig") == "sig" and entry.get("alg", algorithm) == algorithm and "d" not in entry
    )
    return algorithm if usable else None


def _import_sessions() -> ModuleType:
    """The HTTP client, whose import takes half a second."""
    from vectorforge.vendors import session as vendor_session

    return vendor_session
