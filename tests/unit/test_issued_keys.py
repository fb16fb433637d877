"""Database keys cached by a process, and scopes of credentials in the settings."""

import asyncio
import hashlib
from typing import Any

import pytest

from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.api.identity.issued_keys import (
    MAX_KEYS,
    MAX_LOOK_UPS,
    MAX_WRONG_KEYS,
    REMEMBERED_S,
    IssuedKeys,
)
from vectorforge.config import ServerSettings, VectorForgeConfig
from vectorforge.db.errors import WRONG_KEY
from vectorforge.db.repositories.api_key_repo import ActiveApiKey, digest_of
from vectorforge.db.tenant_database import KEY_CHECK, KeyCheck, due_check
from vectorforge.errors import AuthenticationError, ConfigurationError, DatabaseUnavailableError
from vectorforge.types import Principal, Scope


def key(number: int) -> str:
    return f"vf_{number:016x}_{'k' * 43}"


class LookUps:
    """Has the keys with even numbers; counts lookups, and concurrent ones."""

    def __init__(self) -> None:
        self.keys = {digest_of(key(number)): number for number in range(0, 40_000, 2)}
        self.asked = 0
        self.asking = 0
        self.most = 0
        self.seconds_left: float | None = None
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def find(self, digest: bytes) -> ActiveApiKey | None:
        self.asked += 1
        self.asking += 1
        self.most = max(self.most, self.asking)
        await asyncio.sleep(0)
        self.asking -= 1
        number = self.keys.get(digest)
        if number is None:
            return None
        return ActiveApiKey("acme", f"{number:016x}", digest, Scope.WRITE, self.seconds_left)


@pytest.fixture
def database() -> LookUps:
    return LookUps()


@pytest.fixture
def issued(database: LookUps) -> IssuedKeys:
    return IssuedKeys(database.find, clock=database.clock)


async def test_key_lookups_are_cached_until_expiry(issued: IssuedKeys, database: LookUps) -> None:
    for _ in range(3):
        assert await issued.find(key(2)) == Principal("acme", Scope.WRITE.included, "vf_0000000000000002")
        assert await issued.find(key(3)) is None
    assert database.asked == 2
    database.now += REMEMBERED_S
    database.keys = {digest_of(key(3)): 3}  # one was revoked, the other created
    assert await issued.find(key(2)) is None
    assert await issued.find(key(3)) is not None
    assert database.asked == 4


async def test_cached_key_expires_with_the_key(issued: IssuedKeys, database: LookUps) -> None:
    database.seconds_left = 5.0
    assert await issued.find(key(2)) is not None
    database.now += 4.9
    assert await issued.find(key(2)) is not None
    assert database.asked == 1
    database.now += 0.2
    database.keys.clear()
    assert await issued.find(key(2)) is None


async def test_revoked_key_is_forgotten_immediately(issued: IssuedKeys, database: LookUps) -> None:
    await issued.find(key(2))
    await issued.find(key(4))
    issued.forget(f"{2:016x}")
    await issued.find(key(2))
    await issued.find(key(4))
    assert database.asked == 3


async def test_key_cache_is_bounded_and_wrong_keys_evict_no_valid_ones(
    issued: IssuedKeys, database: LookUps
) -> None:
    await issued.find(key(2))
    for number in range(1, 4 * MAX_WRONG_KEYS, 2):
        await issued.find(key(number))
    asked = database.asked
    await issued.find(key(2))
    assert database.asked == asked
    assert len(issued._wrong) == MAX_WRONG_KEYS
    for number in range(0, 2 * MAX_KEYS + 10, 2):
        await issued.find(key(number))
    assert len(issued._good) == MAX_KEYS


async def test_burst_of_wrong_keys_runs_at_most_two_lookups(issued: IssuedKeys, database: LookUps) -> None:
    await asyncio.gather(*(issued.find(key(number)) for number in range(1, 400, 2)))
    assert database.most == MAX_LOOK_UPS
    asked = database.asked
    await asyncio.gather(*(issued.find(key(401)) for _ in range(100)))  # the same one many times
    assert database.asked <= asked + MAX_LOOK_UPS


@pytest.mark.parametrize(
    "other",
    ["", "vf_", "vf_0123456789abcdef_short", f"vf_0123456789ABCDEF_{'k' * 43}", f"{key(2)}\n", "x" * 100_000],
)
async def test_malformed_key_is_not_looked_up(issued: IssuedKeys, database: LookUps, other: str) -> None:
    assert await issued.find(other) is None
    assert database.asked == 0


async def test_failed_lookup_raises_database_unavailable() -> None:
    async def down(_: bytes) -> ActiveApiKey | None:
        raise DatabaseUnavailableError

    with pytest.raises(DatabaseUnavailableError):  # 503, not a rejection of the key
        await Authenticator(ServerSettings(), issued=IssuedKeys(down)).authenticate({"x-api-key": key(2)})


async def test_hanging_lookup_raises_database_unavailable(database: LookUps) -> None:
    async def deaf(_: bytes) -> ActiveApiKey | None:
        await asyncio.Event().wait()
        raise AssertionError("never set")

    issued = IssuedKeys(deaf, clock=database.clock, max_wait_s=0.01)
    found = await asyncio.gather(
        *(issued.find(key(n)) for n in range(2 * MAX_LOOK_UPS)), return_exceptions=True
    )
    assert [type(each) for each in found] == [DatabaseUnavailableError] * len(found)


DIGEST = hashlib.sha256(b"configured").hexdigest()
ROLE = "arn:aws:iam::123456789012:role/reader"


class TestConfiguredScopes:
    def principal(self, headers: dict[str, str], event: Any = None, **scopes: Scope) -> Principal:
        names = {"key": DIGEST, "gateway": "k3yidacm3e", "iam": ROLE}
        settings = ServerSettings(
            api_keys={DIGEST.upper(): "acme"},
            api_gateway_keys={"k3yidacm3e": "acme"},
            iam_tenants={ROLE: "acme"},
            credential_scopes={names[kind]: scope for kind, scope in scopes.items()},
        )
        return asyncio.run(Authenticator(settings).authenticate(headers, event))

    def test_credential_without_setting_has_all_scopes(self) -> None:
        found = self.principal({"x-api-key": "configured"})
        assert found == Principal("acme", frozenset(Scope), f"sha256:{DIGEST[:12]}")

    def test_credential_has_its_configured_scope(self) -> None:
        gateway = {"requestContext": {"identity": {"apiKeyId": "k3yidacm3e"}}}
        iam = {"requestContext": {"identity": {"userArn": ROLE}}}
        given = {"key": Scope.READ, "gateway": Scope.WRITE, "iam": Scope.READ}
        assert self.principal({"x-api-key": "configured"}, **given).scopes == {Scope.READ}
        assert self.principal({}, gateway, **given).scopes == {Scope.READ, Scope.WRITE}
        assert self.principal({}, iam, **given).scopes == {Scope.READ}

    def test_combined_credentials_share_common_scopes_only(self) -> None:
        both = {"requestContext": {"identity": {"apiKeyId": "k3yidacm3e", "userArn": ROLE}}}
        found = self.principal({"x-api-key": "configured"}, both, iam=Scope.READ)
        assert found.scopes == {Scope.READ}
        assert found.credential.count("+") == 2

    def test_scope_for_unknown_credential_is_rejected_at_startup(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(ConfigurationError, match="entry 1 is in none"):
            Authenticator(ServerSettings(credential_scopes={DIGEST: Scope.READ}))
        monkeypatch.setenv("VECTORFORGE_CREDENTIAL_SCOPES", '{"a": "root"}')
        with pytest.raises(ConfigurationError, match="VECTORFORGE_CREDENTIAL_SCOPES"):
            VectorForgeConfig.from_environment()


def test_local_auth_returns_one_tenant_with_every_scope() -> None:
    principal = asyncio.run(Authenticator(ServerSettings(auth="local", local_tenant="me")).authenticate({}))
    assert principal == Principal("me", frozenset(Scope), "local")


def test_authentication_error_distinguishes_wrong_from_missing_key() -> None:
    authenticator = Authenticator(ServerSettings())
    for headers, presented in (({}, False), ({"x-api-key": "wrong"}, True)):
        with pytest.raises(AuthenticationError) as caught:
            asyncio.run(authenticator.authenticate(headers))
        assert caught.value.presented is presented


def test_failed_key_check_is_due_again() -> None:
    """A step that continues without the database must not bypass the check."""
    forgotten: list[str] = []
    check = KeyCheck(frozenset({"b", "a"}), forgotten.append)
    assert check.added_to(("SELECT vectorforge.enter_tenant(%s)", ("acme",))) == (
        "SELECT vectorforge.enter_tenant(%s), vectorforge.check_keys(%s::text[])",
        ("acme", ["a", "b"]),
    )
    token = KEY_CHECK.set(check)
    try:
        with pytest.raises(DatabaseUnavailableError), check:
            raise DatabaseUnavailableError
        assert (due_check(), forgotten) == (check, [])
        with pytest.raises(AuthenticationError), check:
            raise AuthenticationError(WRONG_KEY)
        assert (due_check(), forgotten) == (check, ["a", "b"])
        with check:
            pass
        assert due_check() is None
    finally:
        KEY_CHECK.reset(token)
