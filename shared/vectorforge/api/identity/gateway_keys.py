"""Tenants of API Gateway's keys that are stored outside of the settings, read again as they age."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from vectorforge.config import ServerSettings
from vectorforge.db.types import MAX_TENANT_BYTES, checked_tenant
from vectorforge.errors import (
    ConfigurationError,
    GatewayKeysUnavailableError,
    InvalidInputError,
    VectorForgeError,
)
from vectorforge.types import Principal, Scope

logger = logging.getLogger(__name__)

API_KEY_ID: Final = re.compile(r"[A-Za-z0-9]{1,19}")
"""Shorter than any key's value, which has 20 characters at least: so a key put here by mistake is refused.
https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-api-usage-plans.html"""

_PAUSE_S = 30.0
"""Longest time between two attempts to read."""
_GRACE_S = 3600.0
"""During which an outage of the store leaves the last map, after its age."""
_LONGEST_READING_S = 5.0
_UNAVAILABLE = (
    "The tenant of the API Gateway key cannot be looked up now. Send the request again in a minute; the "
    "operator finds the cause in the function's log."
)


class StoredGatewayKeys:
    """Holders of keys by the keys' ids.

    Args:
        read: One reading: ids and their tenants. Called in a thread, one at a time.
        settings: ``credential_scopes``, and ``api_gateway_keys``, whose scopes these may be.
        max_age_s: Seconds after which they are read again.
    """

    def __init__(
        self, read: Callable[[], Mapping[str, object]], settings: ServerSettings, *, max_age_s: float
    ) -> None:
        self._read = read
        self._settings = settings
        self._max_age_s = max_age_s
        self._holders: Mapping[str, Principal] | None = None
        # Not the monotonic clock, which may stand still while a function is frozen between invocations.
        self._read_at = self._tried_at = 0.0
        self._reading = asyncio.Lock()

    async def find(self, key_id: str) -> Principal | None:
        """The holder of a key; None when it belongs to no tenant. May wait 5 s for a reading.

        Raises:
            GatewayKeysUnavailableError: They cannot be read, or are not what they should be.
        """
        async with self._reading:  # many requests make one reading
            if self._is_due():
                await self._read_again()
        if self._holders is None:
            raise GatewayKeysUnavailableError(_UNAVAILABLE)
        return self._holders.get(key_id)

    async def preload(self) -> None:
        """Read in the init phase; requests tell when that fails."""
        async with self._reading:
            if self._is_due():
                await self._read_again()

    def _is_due(self) -> bool:
        now, pause_s = time.time(), min(_PAUSE_S, self._max_age_s)
        is_young = self._holders is not None and 0 <= now - self._read_at < self._max_age_s
        return not is_young and not 0 <= now - self._tried_at < pause_s

    async def _read_again(self) -> None:
        self._tried_at = time.time()
        try:
            async with asyncio.timeout(_LONGEST_READING_S):
                self._holders = self._checked(await asyncio.to_thread(self._read))
            self._read_at = self._tried_at
        except ConfigurationError as exc:  # waiting does not mend it, and the last map may be wrong
            self._holders = None
            logger.error("The tenants of API Gateway's keys cannot be read: %s", exc.message)
        except (VectorForgeError, TimeoutError) as exc:
            if not 0 <= self._tried_at - self._read_at < self._max_age_s + _GRACE_S:
                self._holders = None
            reason = exc.message if isinstance(exc, VectorForgeError) else "the store answers slowly."
            last = "there is no last map" if self._holders is None else "going on with the last map"
            logger.warning("The tenants of API Gateway's keys cannot be read; %s: %s", last, reason)

    def _checked(self, fields: Mapping[str, object]) -> dict[str, Principal]:
        """Strictly: one entry that cannot be makes all of them doubtful. Errors hold no value."""
        scopes = self._settings.credential_scopes
        holders: dict[str, Principal] = {}
        for position, (key_id, tenant) in enumerate(fields.items(), start=1):
            if not API_KEY_ID.fullmatch(key_id):
                raise ConfigurationError(
                    "VECTORFORGE_GATEWAY_KEY_SECRET_ID: the secret maps the id of an API Gateway key (1 to "
                    "19 letters and digits, not the key itself) to a tenant; the name of entry "
                    f"{position} is no id."
                )
            holders[key_id] = holder_of(key_id, _tenant(tenant, position), scopes)
        known = holders.keys() | self._settings.api_gateway_keys.keys()
        if any(API_KEY_ID.fullmatch(name) and name not in known for name in scopes):
            raise ConfigurationError(
                "VECTORFORGE_CREDENTIAL_SCOPES names the id of an API Gateway key that is neither in "
                "VECTORFORGE_API_GATEWAY_KEYS nor in the secret of VECTORFORGE_GATEWAY_KEY_SECRET_ID."
            )
        return holders


def holder_of(key_id: str, tenant: str, scopes: Mapping[str, Scope]) -> Principal:
    """Who holds a key of API Gateway; it may do everything where ``scopes`` does not name its id."""
    return Principal(tenant, scopes.get(key_id, Scope.ADMIN).included, f"api-gateway:{key_id}")


def _tenant(value: object, position: int) -> str:
    try:
        return checked_tenant(value if isinstance(value, str) else "")
    except InvalidInputError:
        raise ConfigurationError(
            "VECTORFORGE_GATEWAY_KEY_SECRET_ID: the secret names a tenant that cannot be, in entry "
            f"{position}; a tenant is a text of 1 to {MAX_TENANT_BYTES} bytes."
        ) from None
