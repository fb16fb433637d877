"""Callers identified by AWS's front doors: their tenant, and rejections."""

import asyncio
import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.api.identity.front_doors import FrontDoorCaller, IamPrincipal
from vectorforge.config import ServerSettings, VectorForgeConfig
from vectorforge.errors import AuthenticationError, ConfigurationError

ROOT = Path(__file__).parents[2]
ACCOUNT = "123456789012"
KEYS = {"acme": "key-of-acme", "beta": "key-of-beta", "unknown": "ExampleKeyOfApiGateway0123456789"}
KEY_IDS = {"acme": "k3yidacm3e", "beta": "k3yidb3ta0", "unassigned": "k3yid00000"}
ROLES = {"acme": "acme-reader", "beta": "beta-reader", "unassigned": "somebody"}
SETTINGS: dict[str, Any] = {
    "api_keys": {hashlib.sha256(KEYS[tenant].encode()).hexdigest(): tenant for tenant in ("acme", "beta")},
    "api_gateway_keys": {KEY_IDS[tenant]: tenant for tenant in ("acme", "beta")},
    "iam_tenants": {f"arn:aws:iam::{ACCOUNT}:role/{ROLES[tenant]}": tenant for tenant in ("acme", "beta")},
}


def session_of(role: str, *, partition: str = "aws", account: str = ACCOUNT) -> str:
    return f"arn:{partition}:sts::{account}:assumed-role/{role}/ada"


def rest_event(*, key_id: str | None = None, user_arn: str | None = None) -> dict[str, Any]:
    return {"requestContext": {"identity": {"apiKeyId": key_id, "userArn": user_arn}}}


def url_event(user_arn: str | None) -> dict[str, Any]:
    return {"version": "2.0", "requestContext": {"authorizer": {"iam": {"userArn": user_arn}}}}


def asked(bearer: str, x_api_key: str, key_id: str, iam: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return headers and event of a request with these credentials; an empty string stands for none."""
    headers = {"authorization": f"Bearer {KEYS[bearer]}"} if bearer else {}
    headers |= {"x-api-key": KEYS[x_api_key]} if x_api_key else {}
    arn = session_of(ROLES[iam]) if iam else None
    return headers, rest_event(key_id=KEY_IDS[key_id] if key_id else None, user_arn=arn)


def tenant_of(headers: Mapping[str, str], event: object, **settings: Any) -> str:
    """Return the tenant, or "refused"."""
    authenticator = Authenticator(ServerSettings(**{**SETTINGS, **settings}))
    try:
        return asyncio.run(authenticator.authenticate(headers, event)).tenant
    except AuthenticationError:
        return "refused"


def documented() -> list[list[str]]:
    """Return the rows of the decision table in docs/operate/identity.md."""
    text = (ROOT / "docs" / "operate" / "identity.md").read_text(encoding="utf-8")
    _, _, table = text.partition("| API Gateway's key id | IAM | tenant |\n|---|---|---|---|---|\n")
    rows = re.findall(r"^\|(.*)\|$", table.partition("\n\n")[0], re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows]


@pytest.mark.parametrize("row", documented(), ids=" | ".join)
def test_front_door_decisions_match_documented_table(row: list[str]) -> None:  # C42, security 10
    assert tenant_of(*asked(*row[:4])) == row[4]


def test_credential_combinations_resolve_one_tenant_or_reject() -> None:  # C42, security 10
    keys, identities = ("", "acme", "beta", "unknown"), ("", "acme", "beta", "unassigned")
    documented_rows = {tuple(row[:4]) for row in documented()}
    combinations = list(itertools.product(keys, keys, identities, identities))
    assert documented_rows <= set(combinations)
    for bearer, x_api_key, key_id, iam in combinations:
        named = {bearer, x_api_key, key_id, iam} & {"acme", "beta"}
        a_wrong_key = not key_id and (bearer == "unknown" or (x_api_key == "unknown" and not bearer))
        expected = named.pop() if len(named) == 1 and not a_wrong_key else "refused"
        assert tenant_of(*asked(bearer, x_api_key, key_id, iam)) == expected, (bearer, x_api_key, key_id, iam)


@pytest.mark.parametrize("name", ["apigateway_rest_api_key", "apigateway_rest_iam", "function_url_iam"])
def test_recorded_gateway_events_return_tenant(name: str) -> None:
    event = json.loads((ROOT / "events" / f"query_{name}.json").read_text())
    headers = {header.lower(): value for header, value in event["headers"].items()}
    assert tenant_of(headers, event) == "acme"
    assert tenant_of(headers, event, api_gateway_keys={}, iam_tenants={}) == "refused"
    assert tenant_of(headers, None) == "refused"


@pytest.mark.parametrize(
    ("setting", "caller"),
    [
        (f"arn:aws:iam::{ACCOUNT}:role/reader", session_of("reader")),
        (f"arn:aws:iam::{ACCOUNT}:role/teams/acme/reader", session_of("reader")),
        (f"arn:aws:iam::{ACCOUNT}:role/reader", f"arn:aws:iam::{ACCOUNT}:role/reader"),
        (f"arn:aws-us-gov:iam::{ACCOUNT}:role/reader", session_of("reader", partition="aws-us-gov")),
        (f"arn:aws:iam::{ACCOUNT}:user/ada", f"arn:aws:iam::{ACCOUNT}:user/ada"),
        (f"arn:aws:iam::{ACCOUNT}:user/ada", f"arn:aws:iam::{ACCOUNT}:user/division/ada"),
        (f"arn:aws:iam::{ACCOUNT}:role/a_b+c=d,e.f@g-h", session_of("a_b+c=d,e.f@g-h")),
    ],
)
def test_session_arn_matches_its_role_ignoring_path(setting: str, caller: str) -> None:
    for event in (rest_event(user_arn=caller), url_event(caller)):
        assert tenant_of({}, event, iam_tenants={setting: "acme"}) == "acme"


@pytest.mark.parametrize(
    "caller",
    [
        session_of("reader2"),
        session_of("Reader"),
        session_of("reader", account="210987654321"),
        session_of("reader", partition="aws-cn"),
        f"arn:aws:iam::{ACCOUNT}:user/reader",
        f"arn:aws:sts::{ACCOUNT}:assumed-role/other/reader",
        f"arn:aws:sts::{ACCOUNT}:assumed-role/other/role/reader",
        f"arn:aws:sts::{ACCOUNT}:federated-user/reader",
        f"arn:aws:iam::{ACCOUNT}:root",
        f"arn:aws:iam::{ACCOUNT}:role/reader\n",
        "arn:aws:iam:::role/reader",
        "reader",
        "",
        None,
    ],
)
def test_other_principals_do_not_match_role(caller: str | None) -> None:
    settings = {f"arn:aws:iam::{ACCOUNT}:role/reader": "acme"}
    for event in (rest_event(user_arn=caller), url_event(caller)):
        assert tenant_of({}, event, iam_tenants=settings) == "refused"


def test_identity_in_wrong_payload_location_is_ignored() -> None:
    """A Lambda authorizer fills ``authorizer`` of payload 1.0 with arbitrary values."""
    arn = session_of(ROLES["acme"])
    authorizer = {"authorizer": {"iam": {"userArn": arn}, "principalId": arn}}
    assert tenant_of({}, {"requestContext": authorizer}) == "refused"
    identity = {"identity": {"userArn": arn, "apiKeyId": KEY_IDS["acme"]}}
    assert tenant_of({}, {"version": "2.0", "requestContext": identity}) == "refused"
    assert tenant_of({}, {"version": "1.0", "requestContext": identity}) == "acme"


_NAMES = ["requestContext", "identity", "authorizer", "iam", "apiKeyId", "userArn", "version"]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(_NAMES), inner),
    max_leaves=8,
)


@given(event=_JSON)
def test_malformed_event_is_rejected_without_error(event: Any) -> None:
    assert tenant_of({}, event) == "refused"
    assert FrontDoorCaller.of({"requestContext": event}).principal is None


def test_unassigned_principal_is_rejected_with_reason() -> None:
    with pytest.raises(AuthenticationError, match="not assigned to a tenant"):
        asyncio.run(Authenticator(ServerSettings()).authenticate({}, url_event(session_of("reader"))))


def test_local_auth_ignores_gateway_identity() -> None:
    event = rest_event(key_id=KEY_IDS["acme"])
    assert tenant_of({}, event, auth="local", local_tenant="me") == "me"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("API_GATEWAY_KEYS", {"k3yidacm3e": ""}, "VECTORFORGE_API_GATEWAY_KEYS has an invalid tenant"),
        ("API_GATEWAY_KEYS", {"k3yidacm3e": "ä" * 65}, "VECTORFORGE_API_GATEWAY_KEYS has an invalid tenant"),
        ("API_GATEWAY_KEYS", {KEYS["unknown"]: "acme"}, "not the key itself"),
        ("API_GATEWAY_KEYS", {"": "acme"}, "maps the id"),
        ("API_GATEWAY_KEYS", "not JSON", "VECTORFORGE_API_GATEWAY_KEYS"),
        (
            "IAM_TENANTS",
            {f"arn:aws:iam::{ACCOUNT}:role/r": "a\0b"},
            "VECTORFORGE_IAM_TENANTS has an invalid tenant",
        ),
        ("IAM_TENANTS", {session_of("reader"): "acme"}, "entry 1 is not one"),
        ("IAM_TENANTS", {f"arn:aws:iam::{ACCOUNT}:root": "acme"}, "entry 1 is not one"),
        ("IAM_TENANTS", {f"arn:aws:iam::{ACCOUNT}:role/*": "acme"}, "entry 1 is not one"),
        ("IAM_TENANTS", {f"arn:aws:iam::{ACCOUNT}:role/": "acme"}, "entry 1 is not one"),
        (
            "IAM_TENANTS",
            {f"arn:aws:iam::{ACCOUNT}:role/a/r": "acme", f"arn:aws:iam::{ACCOUNT}:role/b/r": "beta"},
            "two tenants",
        ),
    ],
)
def test_invalid_tenant_mapping_is_rejected_at_startup(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: object, told: str
) -> None:
    monkeypatch.setenv(f"VECTORFORGE_{variable}", value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(ConfigurationError, match=told) as caught:
        Authenticator(VectorForgeConfig.from_environment().server)
    assert KEYS["unknown"] not in caught.value.message


def test_iam_principal_is_parsed_from_arn() -> None:
    named = IamPrincipal.named(f"arn:aws:iam::{ACCOUNT}:role/teams/acme/reader")
    assert named == IamPrincipal("aws", ACCOUNT, "role", "reader")
    assert named == IamPrincipal.calling(session_of("reader"))


class Noted(dict[str, Any]):
    """Records requested names, and has every one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)


@pytest.mark.parametrize(
    "made", [rest_event(), rest_event(key_id=KEY_IDS["acme"]), url_event(session_of(ROLES["acme"]))]
)
async def test_authentication_reads_identity_fields_only(made: dict[str, Any]) -> None:
    headers = Noted({"x-api-key-id": KEY_IDS["beta"], "x-tenant-id": "beta", "x-api-key": KEYS["acme"]})
    event = Noted({**made, "headers": headers, "queryStringParameters": headers, "body": "{}"})
    principal = await Authenticator(ServerSettings(**SETTINGS)).authenticate(headers, event)
    assert principal.tenant == "acme"
    assert event.asked <= {"version", "requestContext"}
    assert headers.asked <= {"authorization", "x-api-key"}
