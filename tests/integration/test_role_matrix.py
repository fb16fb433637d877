"""Every route with every kind of credential: access and responses."""

import asyncio
import http.client
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi.routing import iter_route_contexts

from tests.support.http.identity_provider import identity_provider
from tests.support.http.live_api import build_application, settings_for
from tests.support.http.live_server import serve
from vectorforge.api.app import create_app
from vectorforge.api.openapi import create_routes
from vectorforge.api.request_state import PUBLIC_PATHS, ROUTES, undeclared
from vectorforge.config import ServerSettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.api_key_repo import ApiKeyRepository, digest_of
from vectorforge.types import Scope

ALL_ROUTES = [
    (method, route.path or "")
    for route in iter_route_contexts(create_routes().routes)
    for method in sorted(route.methods or ())
]
ROLE = "arn:aws:iam::123456789012:role/reader"
CALLER = "arn:aws:sts::123456789012:assumed-role/reader/ada"
UNAUTHENTICATED, FORBIDDEN = 401, 403

QUERY_ROUTES = re.compile(
    r"/v1/(search|rag/query|docrag/query|chat/completions|embeddings|responses|conversations)"
    r"|/v1/collections/[^/]+/query|/v1/profiles/[^/]+/(search|query)|/v1/vector_stores/[^/]+/search"
    r"|/v1/queries/[^/]+/stop|/api/chat|/mcp/?|/bedrock/.+"
)
"""POST routes that change no document."""
FOR_ADMINS = re.compile(r"/v1/keys.*|/v1/tenant|/v1/stats.*|/metrics|/v1/queries(/[^/]+(/replay)?)?")


def needed(method: str, path: str) -> Scope:
    """Return the scope that a route needs, by rules independent of the table."""
    if FOR_ADMINS.fullmatch(path) or (method != "GET" and "/embedding-switch" in path):
        return Scope.ADMIN
    if path.endswith("/feedback"):  # a reader rates, an admin sees all ratings
        return Scope.ADMIN if method == "GET" else Scope.READ
    if path == "/v1/conversations/{conversation_id}":
        return Scope.READ  # without the scope write only the credential's own
    if path.startswith("/v1/erasures"):
        return Scope.WRITE  # callers that may delete may see the result
    asks = method == "GET" or (method == "POST" and QUERY_ROUTES.fullmatch(path))
    return Scope.READ if asks else Scope.WRITE


@dataclass(frozen=True)
class Actor:
    """A caller with a credential."""

    name: str
    headers: dict[str, str]
    scope: Scope | None
    """The caller's highest scope, or None without access."""

    def expected(self, method: str, path: str) -> int | None:
        """Return the expected status, or None for the route's own."""
        if path in PUBLIC_PATHS:
            return None
        if self.scope is None:
            return UNAUTHENTICATED
        return None if needed(method, path) in self.scope.included else FORBIDDEN


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    challenge: str
    body: str


def front_door(app: Any) -> Any:
    """Wrap the app as AWS does: add the signer's identity, which no client can set."""

    async def called(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (b"x-signed", b"1") in scope["headers"]:
            event = {"version": "2.0", "requestContext": {"authorizer": {"iam": {"userArn": CALLER}}}}
            scope = {**scope, "aws.event": event}
        await app(scope, receive, send)

    return called


@asynccontextmanager
async def served(app_url: str, tenant: str, other: str) -> AsyncIterator[tuple[str, list[Actor]]]:
    """Start a server, with all kinds of callers."""
    async with identity_provider() as provider:
        settings = settings_for(app_url)
        server = ServerSettings(iam_tenants={ROLE: tenant}, credential_scopes={ROLE: Scope.READ})
        config = settings.model_copy(update={"server": server, "identity": provider.settings})
        async with Database(app_url, pool_size=2) as database:
            keys = ApiKeyRepository(database.for_tenant(tenant))
            by_scope = {scope: await keys.create(scope.value, scope) for scope in Scope}
            ended, revoked = [await keys.create(name, Scope.ADMIN) for name in ("ended", "revoked")]
            await keys.rotate(ended.key.id, overlap=timedelta(0))
            await keys.revoke(revoked.key.id)
            elsewhere = await ApiKeyRepository(database.for_tenant(other)).create("other", Scope.ADMIN)
        wrong = by_scope[Scope.ADMIN].secret[:-4] + "AAAA"
        token = provider.token(tenant=tenant, scope="openid read")
        actors = [
            Actor("nobody", {}, None),
            Actor("wrong key", bearer(wrong), None),
            Actor("ended key", bearer(ended.secret), None),
            Actor("revoked key", bearer(revoked.secret), None),
            Actor("the hash", bearer(digest_of(by_scope[Scope.ADMIN].secret).hex()), None),
            *(Actor(f"{scope.value} key", bearer(made.secret), scope) for scope, made in by_scope.items()),
            Actor("x-api-key", {"X-Api-Key": by_scope[Scope.READ].secret}, Scope.READ),
            Actor("other tenant", bearer(elsewhere.secret), Scope.ADMIN),
            Actor("token", bearer(token), Scope.READ),
            Actor("wrong token", bearer(token[:-4] + "AAAA"), None),
            Actor("role", {"X-Signed": "1"}, Scope.READ),
        ]
        async with serve(front_door(create_app(build_application(config)))) as url:
            yield url, actors


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def filled(path: str, collection_id: str) -> str:
    path = path.replace("{collection_id}", collection_id).replace("{profile_id}", "7")
    path = path.replace("{key_id}", "0" * 16).replace("{name}", "nobody").replace("{model:path}", "a/b")
    return re.sub(r"\{\w+\}", lambda _: str(uuid4()), path)


def test_routes_declare_their_scope() -> None:
    declared = {route: scope for scope, routes in ROUTES.items() for route in routes}
    routes = {f"{method} {path}" for method, path in ALL_ROUTES if path not in PUBLIC_PATHS}
    assert declared.keys() == routes
    assert {route: needed(*route.split(" ", 1)) for route in routes} == declared
    assert undeclared([("GET", "/v1/new"), ("GET", "/health"), ("PUT", "/v1/search")]) == [
        "GET /v1/new",
        "PUT /v1/search",
    ]


async def test_role_matrix_has_no_violations(postgres_server: Any, make_tenant: Callable[[], str]) -> None:
    """Security 4, 10, 11."""
    async with served(postgres_server.app_url, make_tenant(), make_tenant()) as (url, actors):
        assert await asyncio.to_thread(knock_everywhere, url, actors) == []


def knock_everywhere(url: str, actors: list[Actor]) -> list[tuple[str, ...]]:
    """Return the unexpected responses; uses one connection, since there are a thousand requests."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    by_name = {actor.name: actor for actor in actors}

    def ask(actor: Actor, method: str, path: str, body: str | None = None) -> Answer:
        headers = {**actor.headers, "Content-Type": "application/json"} if body else actor.headers
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers.get("WWW-Authenticate", ""), response.read().decode())

    made = ask(by_name["admin key"], "POST", "/v1/collections", '{"name": "mine"}')
    collection_id = json.loads(made.body)["id"]
    wrong: list[tuple[str, ...]] = []
    for method, path in sorted(ALL_ROUTES, key=lambda route: route[0] == "DELETE"):
        for actor in actors:
            # Without a body: callers with access get the route's own error.
            answer = ask(actor, method, filled(path, collection_id))
            if not answered_as(answer, actor.expected(method, path), needed(method, path)):
                wrong.append((actor.name, method, path, str(answer)))
            # The router's patterns permit a newline at the end.
            answer = ask(actor, method, f"{filled(path, collection_id)}%0A")
            if actor.expected(method, path) == FORBIDDEN != answer.status:
                wrong.append((actor.name, method, f"{path}%0A", str(answer)))
    connection.close()
    return wrong


def answered_as(answer: Answer, expected: int | None, scope: Scope) -> bool:
    if expected is None:
        return answer.status not in (UNAUTHENTICATED, FORBIDDEN, 500)
    if expected == UNAUTHENTICATED:
        return answer.status == UNAUTHENTICATED and answer.challenge.startswith("Bearer")
    if answer.status != FORBIDDEN:
        return False
    problem = json.loads(answer.body)
    error = problem.get("error", problem)  # of OpenAI's surfaces
    error = error.get("data", error)  # of JSON-RPC
    return (
        answer.challenge == f'Bearer error="insufficient_scope", scope="{scope.value}"'
        and error["code"] == "insufficient_scope"
        and f"the scope `{scope.value}`." in error.get("detail", error.get("message", ""))
    )


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
async def test_unknown_route_without_key_returns_401(
    postgres_server: Any, make_tenant: Callable[[], str], method: str
) -> None:
    async with served(postgres_server.app_url, make_tenant(), make_tenant()) as (url, actors):
        anonymous, reader = actors[0], next(actor for actor in actors if actor.name == "read key")
        async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
            for path in ("/v1/none", "/v1/keys/none/none", "/v1//keys", "/v1/keys/", "/V1/KEYS"):
                assert (await client.request(method, path, headers=anonymous.headers)).status_code == 401
                answered = await client.request(method, path, headers=reader.headers)
                assert answered.status_code in (403, 404, 405, 307)
                assert "keys" not in answered.text
