"""Whom AWS's front doors have let in, and which tenant that is.

API Gateway and function URLs check a caller before the function runs, and say in the event, in its
``requestContext``, who it is. They alone write there: what a client sends (headers, query, body) has other
places. Whoever may invoke the function without a front door writes the whole event; see docs/identity.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vectorforge.api.identity.gateway_keys import API_KEY_ID, StoredGatewayKeys, holder_of
from vectorforge.config import ServerSettings
from vectorforge.errors import ConfigurationError
from vectorforge.types import Principal, Scope

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

    Without its path, which the ARN of an assumed role does not tell. Names are unique within an account
    whatever their paths: https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html
    """

    partition: str
    account: str
    kind: str
    """role | user"""
    name: str

    @classmethod
    def named(cls, arn: str) -> Self | None:
        """The role or user that an ARN of IAM names; None when it names something else."""
        found = _STORED.fullmatch(arn)
        return cls(**found.groupdict()) if found else None

    @classmethod
    def calling(cls, arn: object) -> Self | None:
        """The user, or the role whose session calls, by the ARN in an event.

        None for anybody else: an account's root, a federated user, an AWS service, nobody.
        """
        if not isinstance(arn, str):
            return None
        session = _SESSION.fullmatch(arn)
        return cls(**session.groupdict()) if session else cls.named(arn)


@dataclass(frozen=True, slots=True)
class FrontDoorCaller:
    """Who is asking, as far as a front door knows."""

    api_key_id: str | None = None
    """Id of the API Gateway key that was required and sent; not the key."""
    principal: IamPrincipal | None = None
    """Who signed the request, where the front door demands a signature (AWS_IAM)."""

    @classmethod
    def of(cls, event: object) -> Self:
        """From an event of payload format 1.0 (REST API) or 2.0 (function URL, HTTP API); nobody without one.

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

    Args:
        settings: ``api_gateway_keys``, ``iam_tenants`` and ``credential_scopes``.
        stored: Further keys of API Gateway; None: there are none.

    Raises:
        ConfigurationError: An id is none of API Gateway's, an ARN names no role or user, or two ARNs name the
            same one and different tenants or scopes.
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
                    f"arn:aws:iam::123456789012:role/name, to a tenant; entry {position} is none."
                )
            scope = scopes.get(arn, Scope.ADMIN)
            principal = Principal(tenant, scope.included, f"iam:{named.account}:{named.kind}/{named.name}")
            if self._by_principal.setdefault(named, principal) != principal:
                raise ConfigurationError(
                    f"VECTORFORGE_IAM_TENANTS gives the {named.kind} {named.name!r} of account "
                    f"{named.account} two tenants or scopes; a path makes no other {named.kind} of it."
                )

    async def of(self, caller: FrontDoorCaller) -> list[Principal]:
        """Whom the caller's identities stand for; empty when none is assigned to a tenant.

        Raises:
            GatewayKeysUnavailableError: A key of API Gateway cannot be looked up.
        """
        named = (
            None if caller.api_key_id is None else await self._of_key(caller.api_key_id),
            None if caller.principal is None else self._by_principal.get(caller.principal),
        )
        return [principal for principal in named if principal is not None]

    async def _of_key(self, key_id: str) -> Principal | None:
        found = self._by_key_id.get(key_id)
        if found is None and self._stored is not None:
            found = await self._stored.find(key_id)
        return found


def _part(whole: object, name: str) -> Mapping[str, Any]:
    """An object inside a JSON object; an empty one where there is none."""
    found = whole.get(name) if isinstance(whole, Mapping) else None
    return found if isinstance(found, Mapping) else {}
