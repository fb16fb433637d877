"""API keys: created, used, rotated and revoked, over HTTP and a real database."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import httpx2
import psycopg
import pytest

from tests.support.http.live_api import LiveApi, build_application, live_api, settings_for
from tests.support.http.live_server import serve
from vectorforge.api.app import create_app
from vectorforge.db.connection import Database
from vectorforge.db.repositories.api_key_repo import ApiKeyRepository, NewApiKey, digest_of, find_api_key
from vectorforge.errors import InvalidInputError, NotFoundError
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Scope

Served: TypeAlias = tuple[LiveApi, httpx2.AsyncClient]


@pytest.fixture
async def api(
    app_url: str, make_tenant: Callable[[], str]
) -> AsyncIterator[tuple[LiveApi, httpx2.AsyncClient]]:
    """Start a server, with a client whose key in the settings has all scopes."""
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as served, served.client(tenant) as admin:
        yield served, admin


async def status_with(served: LiveApi, key: str, path: str = "/v1/collections", method: str = "GET") -> int:
    async with served.client(None) as client:
        return (await client.request(method, path, headers={"Authorization": f"Bearer {key}"})).status_code


async def made(admin: httpx2.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await admin.post("/v1/keys", json={"name": "test", **body})
    assert response.status_code == 201, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_api_key_is_created_rotated_and_revoked(api: Served) -> None:  # security 10
    served, admin = api
    old = await made(admin, scope="write", expires_in_days=30)
    assert old["key"].startswith(f"vf_{old['id']}_")
    assert len(old["key"]) == 3 + 16 + 1 + 43
    assert await status_with(served, old["key"]) == 200
    assert await status_with(served, old["key"], "/v1/keys") == 403

    new = (await admin.post(f"/v1/keys/{old['id']}/rotate", json={"overlap_hours": 1})).json()
    assert (new["name"], new["scope"]) == ("test", "write")
    lifetime = datetime.fromisoformat(new["expires_at"]) - datetime.fromisoformat(new["created_at"])
    assert lifetime == timedelta(days=30)
    assert [await status_with(served, key["key"]) for key in (old, new)] == [200, 200]
    assert (await admin.post(f"/v1/keys/{old['id']}/rotate")).status_code == 404  # it has a successor

    newest = (await admin.post(f"/v1/keys/{new['id']}/rotate", json={"overlap_hours": 0})).json()
    assert [await status_with(served, key["key"]) for key in (old, new, newest)] == [200, 401, 200]
    assert (await admin.delete(f"/v1/keys/{newest['id']}")).status_code == 200
    assert await status_with(served, newest["key"]) == 401
    assert (await admin.delete(f"/v1/keys/{newest['id']}")).status_code == 404

    listed = (await admin.get("/v1/keys")).json()["keys"]
    by_id = {key["id"]: key for key in listed}
    assert by_id[old["id"]]["successor"] == new["id"]
    assert by_id[newest["id"]]["revoked_at"] is not None
    assert by_id[old["id"]]["last_used_on"] == datetime.now(UTC).date().isoformat()
    assert all(secret["key"][20:] not in str(listed) for secret in (old, new, newest))


async def test_invalid_credentials_return_identical_401_responses(api: Served) -> None:
    """Security 10: an existing id, an expired key and an unknown key are indistinguishable."""
    served, admin = api
    revoked, ended, good = [await made(admin) for _ in range(3)]
    await admin.delete(f"/v1/keys/{revoked['id']}")
    await admin.post(f"/v1/keys/{ended['id']}/rotate", json={"overlap_hours": 0})
    secrets = [
        revoked["key"],
        ended["key"],
        f"{good['key'][:-4]}AAAA",
        f"vf_{'0' * 16}_{'x' * 43}",
        "no-key-at-all",
    ]
    answers = []
    for secret in secrets:
        async with served.client(None) as client:
            response = await client.get("/v1/collections", headers={"Authorization": f"Bearer {secret}"})
        problem = {name: value for name, value in response.json().items() if name != "request_id"}
        answers.append((response.status_code, response.headers["www-authenticate"], problem))
        assert secret not in response.text
    assert answers == [answers[0]] * len(secrets)
    assert answers[0][:2] == (401, 'Bearer error="invalid_token"')


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"name": "txt\u202eexe"}, "name"),
        ({"name": "n", "scope": "root"}, "scope"),
        ({"name": "n", "expires_in_days": 0}, "expires_in_days"),
        ({"name": "n", "expires_in_days": 3651}, "expires_in_days"),
        ({"name": "n", "tenant_id": "other"}, "tenant_id"),
    ],
)
async def test_invalid_api_key_request_returns_422_naming_the_field(
    api: Served, body: dict[str, Any], field: str
) -> None:
    response = await api[1].post("/v1/keys", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == field


@pytest.mark.parametrize("key_id", ["0" * 16, "x", "%00", "'%20OR%20true", "é" * 16])
async def test_unknown_api_key_id_returns_404(api: Served, key_id: str) -> None:
    assert (await api[1].delete(f"/v1/keys/{key_id}")).status_code == 404
    assert (await api[1].post(f"/v1/keys/{key_id}/rotate")).status_code == 404


async def test_new_api_key_works_in_other_process_until_database_is_lost(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    config = settings_for(postgres_server.app_url, [tenant])
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(live_api(config)) for _ in range(2)]
        admin = await stack.enter_async_context(one.client(tenant))
        key = await made(admin)
        assert await status_with(two, key["key"]) == 200
        await two.application.close()
        assert await status_with(two, (await made(admin))["key"]) == 503  # the key cannot be checked
        assert await status_with(two, key["key"], "/health") == 503  # reports the cause to any client
        assert await status_with(two, f"vf_{'0' * 16}_{'x' * 43}", "/openapi.json") == 200


async def test_issued_key_opens_the_lazy_database_and_malformed_key_does_not(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    async with Database(postgres_server.app_url, pool_size=1) as database:
        key = await ApiKeyRepository(database.for_tenant(make_tenant())).create("n", Scope.READ)
    application = build_application(settings_for(postgres_server.app_url))
    async with serve(create_app(application, open_on_demand=True)) as url:
        served = LiveApi(url, application)
        assert await status_with(served, "wrong") == 401
        assert application.database._pool is None
        assert await asyncio.gather(*(status_with(served, key.secret) for _ in range(5))) == [200] * 5


class TestStoredKeys:
    @pytest.fixture
    def keys(self, database: Database, make_tenant: Callable[[], str]) -> ApiKeyRepository:
        return ApiKeyRepository(database.for_tenant(make_tenant()))

    async def test_stored_key_is_a_hash_that_the_app_cannot_read(
        self, keys: ApiKeyRepository, database: Database, postgres_server: EmbeddedPostgres
    ) -> None:
        key = await keys.create("n", Scope.READ)
        assert key.secret not in repr(key)
        with psycopg.connect(postgres_server.migrator_url) as connection:
            row = connection.execute(
                "SELECT k.digest, k::text FROM vectorforge.api_keys AS k WHERE id = %s", (key.key.id,)
            ).fetchone()
        assert row is not None
        assert row[0] == digest_of(key.secret)
        assert key.secret[20:] not in row[1]
        with (
            psycopg.connect(postgres_server.app_url) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute("SELECT digest FROM vectorforge.api_keys")

    async def test_keys_of_other_tenant_are_inaccessible(
        self, keys: ApiKeyRepository, database: Database, make_tenant: Callable[[], str]
    ) -> None:  # security 4
        mine = await keys.create("mine", Scope.ADMIN)
        other = ApiKeyRepository(database.for_tenant(make_tenant()))
        assert list(await other.list()) == []
        for attempt in (other.rotate(mine.key.id), other.revoke(mine.key.id)):
            with pytest.raises(NotFoundError):
                await attempt
        found = await find_api_key(database, digest_of(mine.secret))
        assert found is not None
        assert found.id == mine.key.id
        assert await database.fetch_untenanted("SELECT id FROM vectorforge.api_keys") is None

    async def test_concurrent_rotations_create_one_successor(self, keys: ApiKeyRepository) -> None:
        old = await keys.create("n", Scope.READ)
        results = await asyncio.gather(*(keys.rotate(old.key.id) for _ in range(20)), return_exceptions=True)
        assert sum(isinstance(result, NewApiKey) for result in results) == 1
        assert len(await keys.list()) == 2

    async def test_key_use_is_written_once_a_day(
        self, keys: ApiKeyRepository, database: Database, postgres_server: EmbeddedPostgres
    ) -> None:
        key = await keys.create("n", Scope.READ)
        versions = []
        for _ in range(3):
            assert await find_api_key(database, digest_of(key.secret)) is not None
            with psycopg.connect(postgres_server.migrator_url) as connection:
                row = connection.execute(
                    "SELECT xmin, last_used_on FROM vectorforge.api_keys WHERE id = %s", (key.key.id,)
                ).fetchone()
            versions.append(row)
        assert versions == [versions[0]] * 3
        assert versions[0] is not None
        assert versions[0][1] is not None

    async def test_key_expiry_is_retained_after_rotation(
        self, keys: ApiKeyRepository, database: Database
    ) -> None:
        key = await keys.create("n", Scope.READ, lifetime=timedelta(hours=1))
        found = await find_api_key(database, digest_of(key.secret))
        assert found is not None
        assert found.seconds_left is not None
        assert 3000 < found.seconds_left <= 3600
        successor = await keys.rotate(key.key.id, overlap=timedelta(days=30))  # expires no later than before
        (old,) = [listed for listed in await keys.list() if listed.id == key.key.id]
        assert old.expires_at == key.key.expires_at
        assert old.successor == successor.key.id

    @pytest.mark.parametrize("lifetime", [timedelta(0), timedelta(days=-1), timedelta(days=3651)])
    async def test_key_lifetime_out_of_range_is_rejected(
        self, keys: ApiKeyRepository, lifetime: timedelta
    ) -> None:
        with pytest.raises(InvalidInputError):
            await keys.create("n", Scope.READ, lifetime=lifetime)
        with pytest.raises(InvalidInputError):
            await keys.create("a\0b", Scope.READ)
