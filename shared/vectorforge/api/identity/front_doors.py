"""Tenants of callers that an AWS front door has authenticated: API Gateway's keys, and IAM roles and users.

API Gateway and function URLs check a caller before the function runs, and describe it in ``requestContext``
of the event. Only they write there; headers, query and body of a client are elsewhere. A caller that may
invoke the function directly writes the whole event; see docs/operate/identity.md.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from vectorforge.config import ServerSettings
from vectorforge.db.tenant_database import MAX_TENANT_BYTES, checked_tenant
from vectorforge.errors import (
    ConfigurationError,
    GatewayKeysUnavailableError,
    InvalidInputError,
    VectorForgeError,
)
from vectorforge.types import Principal, Scope

logger = logging.getLogger(__name__)

API_KEY_ID: Final = re.compile(r"[A-Za-z0-9]{1,19}")
"""Shorter than a key's value (at least 20 characters), so a key entered by mistake is rejected.
https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-api-usage-plans.html"""

_PAUSE_S = 30.0
"""Longest time between two attempts to read."""
_GRACE_S = 3600.0
"""Time for which the last map is used beyond its age while the store is unavailable."""
_LONGEST_READING_S = 5.0


class StoredGatewayKeys:
    """Tenants of API Gateway's keys, stored outside of the settings and read again when they age.

    Args:
        read: Returns key ids and their tenants. Called in a thread, one call at a time.
        settings: ``credential_scopes``, which may refer to these and to ``api_gateway_keys``.
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
        """Return the holder of a key, or None if it belongs to no tenant. May wait 5 s for the map.

        Raises:
            GatewayKeysUnavailableError: The map cannot be read or is invalid.
        """
        await self.preload()
        if self._holders is None:
            raise GatewayKeysUnavailableError(
                "The tenant of the API Gateway key cannot be looked up. Retry in a minute; the operator "
                "finds the cause in the function's log."
            )
        return self._holders.get(key_id)

    async def preload(self) -> None:
        """Read the map if it is due, as in the init phase; ``find`` reports failures."""
        async with self._reading:  # one read for many requests
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
        except ConfigurationError as exc:  # permanent, and the last map may be wrong
            self._holders = None
            logger.error("Failed to read the tenants of API Gateway's keys: %s", exc.message)
        except (VectorForgeError, TimeoutError) as exc:
            if not 0 <= self._tried_at - self._read_at < self._max_age_s + _GRACE_S:
                self._holders = None
            reason = exc.message if isinstance(exc, VectorForgeError) else "the store answers slowly."
            last = "no earlier map" if self._holders is None else "using the last map"
            logger.warning("Failed to read the tenants of API Gateway's keys; %s: %s", last, reason)

    def _checked(self, fields: Mapping[str, object]) -> dict[str, Principal]:
        """Validate all entries, since one invalid entry makes all doubtful. Errors contain no value."""
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
    """Return the principal of an API Gateway key, with all scopes unless ``scopes`` has its id."""
    return Principal(tenant, scopes.get(key_id, Scope.ADMIN).included, f"api-gateway:{key_id}")


def _tenant(value: object, position: int) -> str:
    try:
        return checked_tenant(value if isinstance(value, str) else "")
    except InvalidInputError:
        raise ConfigurationError(
            "VECTORFORGE_GATEWAY_KEY_SECRET_ID: the secret has an invalid tenant in entry "
            f"{position}; a tenant is a text of 1 to {MAX_TENANT_BYTES} bytes."
        ) from None


# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html#identifiers-arns
_NAME = r"(?P<name>[A-Za-z0-9_+=,.@-]{1,64})"
_PATH = r"/(?:[\x21-\x7e]+/)?"
_ACCOUNT = r"(?P<account>[0-9]{12})"
_STORED = re.compile(rf"arn:(?P<partition>aws[a-z-]*):iam::{_ACCOUNT}:(?P<kind>role|user){_PATH}{_NAME}")
_SESSION = re.compile(
    rf"arn:(?P<partition>aws[a-z-]*):sts::{_ACCOUNT}:assumed-(?P<kind>role)/{_NAME}/[A-Za-z0-9_+=,.@-]+"
)


@dataclass(frozen=True, slots=True)
class IamPrincipal:
    """A role or a user of IAM.

    It has no path, which the ARN of an assumed role lacks. Names are unique within an account regardless of
    paths: https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html
    """

    partition: str
    account: str
    kind: str
    """role | user"""
    name: str

    @classmethod
    def named(cls, arn: str) -> Self | None:
        """Return the role or user of an IAM ARN, or None for other ARNs."""
        match = _STORED.fullmatch(arn)
        return cls(**match.groupdict()) if match else None

    @classmethod
    def calling(cls, arn: object) -> Self | None:
        """Return the user, or the role of the session, for the ARN in an event.

        None for an account's root, a federated user, an AWS service, or no caller.
        """
        if not isinstance(arn, str):
            return None
        session = _SESSION.fullmatch(arn)
        return cls(**session.groupdict()) if session else cls.named(arn)


@dataclass(frozen=True, slots=True)
class FrontDoorCaller:
    """Caller as identified by a front door."""

    api_key_id: str | None = None
    """Id of the API Gateway key that was required and sent; not the key."""
    principal: IamPrincipal | None = None
    """Signer of the request, if the front door requires a signature (AWS_IAM)."""

    @classmethod
    def of(cls, event: object) -> Self:
        """Read the caller from an event of payload format 1.0 (REST API) or 2.0 (function URL, HTTP API).

        Sources: https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-lambda-proxy-integrations.html
        and https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html.
        """
        context = _part(event, "requestContext")
        if isinstance(event, Mapping) and event.get("version") == "2.0":
            iam = _part(_part(context, "authorizer"), "iam")
            return cls(principal=IamPrincipal.calling(iam.get("userArn")))
        identity = _part(context, "identity")
        key_id = identity.get("apiKeyId")
        return cls(
            api_key_id=key_id if isinstance(key_id, str) and key_id else None,
            principal=IamPrincipal.calling(identity.get("userArn")),
        )


class FrontDoorIdentities:
    """Tenants and scopes of API Gateway's keys and of IAM's roles and users.

    Raises:
        ConfigurationError: An id or an ARN is malformed, or two ARNs name the same role or user with
            different tenants or scopes.
    """

    def __init__(self, settings: ServerSettings, stored: StoredGatewayKeys | None = None) -> None:
        self._stored = stored
        scopes = settings.credential_scopes
        self._by_key_id: dict[str, Principal] = {}
        for key_id, tenant in settings.api_gateway_keys.items():
            if not API_KEY_ID.fullmatch(key_id):
                raise ConfigurationError(
                    "VECTORFORGE_API_GATEWAY_KEYS maps the id of an API Gateway key (1 to 19 letters and "
                    "digits, not the key itself) to a tenant."
                )
            self._by_key_id[key_id] = holder_of(key_id, tenant, scopes)
        self._by_principal: dict[IamPrincipal, Principal] = {}
        for position, (arn, tenant) in enumerate(settings.iam_tenants.items(), start=1):
            named = IamPrincipal.named(arn)
            if named is None:
                raise ConfigurationError(
                    "VECTORFORGE_IAM_TENANTS maps the ARN of an IAM role or user, such as "
                    f"arn:aws:iam::123456789012:role/name, to a tenant; entry {position} is not one."
                )
            scope = scopes.get(arn, Scope.ADMIN)
            principal = Principal(tenant, scope.included, f"iam:{named.account}:{named.kind}/{named.name}")
            if self._by_principal.setdefault(named, principal) != principal:
                raise ConfigurationError(
                    f"VECTORFORGE_IAM_TENANTS gives the {named.kind} {named.name!r} of account "
                    f"{named.account} two tenants or scopes; a path makes no other {named.kind} of it."
                )

    async def of(self, caller: FrontDoorCaller) -> list[Principal]:
        """Return the principals of the caller's identities; empty if none is assigned to a tenant.

        Raises:
            GatewayKeysUnavailableError: A key of API Gateway cannot be looked up.
        """
        named = (
            None if caller.api_key_id is None else await self._of_key(caller.api_key_id),
            None if caller.principal is None else self._by_principal.get(caller.principal),
        )
        return [principal for principal in named if principal is not None]

    async def _of_key(self, key_id: str) -> Principal | None:
        principal = self._by_key_id.get(key_id)
        if principal is None and self._stored is not None:
            principal = await self._stored.find(key_id)
        return principal


def _part(whole: object, name: str) -> Mapping[str, Any]:
    """Return an object inside a JSON object, or an empty one."""
    part = whole.get(name) if isinstance(whole, Mapping) else None
    return part if isinstance(part, Mapping) else {}
