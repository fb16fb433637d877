"""Routes of questions: good requests go past FastAPI's way, all others through it."""

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Any, ClassVar, NamedTuple
from uuid import UUID

import pytest
from fastapi import APIRouter, Depends, FastAPI, Path, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, SecretStr
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.middleware.context import RequestContext, RequestMetrics
from vectorforge.api.middleware.guards import BodyLimit
from vectorforge.api.problems import install_problem_handlers
from vectorforge.api.query_route import QueryRoute
from vectorforge.api.request_state import RequestState
from vectorforge.api.routers import Routers, RoutersOnDemand
from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings, VectorForgeConfig
from vectorforge.errors import InvalidInputError
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.types import Principal
from vectorforge.types import Scope as Scopes

DATABASE = DatabaseSettings(database_url=SecretStr("postgresql://nobody@127.0.0.1:1/none"))
ID = "0d9d6a4e-8a3c-4c7b-9a55-5d4f3f2f6c11"


class Question(BaseModel):
    query: str = Field(max_length=5)


class Answer(BaseModel):
    text: str
    id: UUID


def authenticate(scope: Scope) -> None:
    RequestState.of(scope).principal = Principal("a", Scopes.ADMIN.included, "test")


def client(route_class: type[Any], **settings: Any) -> TestClient:
    router = APIRouter(route_class=route_class)

    @router.post("/ask/{question_id}", **settings)
    async def ask(
        request: Request, question_id: UUID, body: Question, application: ApplicationDep, tenant: Tenant
    ) -> Answer:
        assert application.for_tenant("a") is not None
        return Answer(text=f"{tenant.tenant_id}: {body.query}é", id=question_id)

    app = FastAPI()
    app.state.application = Application.build(VectorForgeConfig(database=DATABASE))
    install_problem_handlers(app)
    app.include_router(router)

    async def with_tenant(scope: Any, receive: Any, send: Any) -> None:
        RequestState.begin(scope)
        authenticate(scope)
        await app(scope, receive, send)

    return TestClient(with_tenant, headers={"x-request-id": "the-request"})


REQUESTS = [
    (f"/ask/{ID}", b'{"query": "why"}', "application/json"),
    (f"/ask/{ID}", b'{"query": "why"}', "Application/JSON; charset=utf-8"),
    (f"/ask/{ID}", b'{"query": "why"}', "application/problem+json"),
    (f"/ask/{ID}", b'{"query": "why"}', "text/plain"),
    (f"/ask/{ID}", b'{"query": "much too long"}', "application/json"),
    (f"/ask/{ID}", b'{"query": ', "application/json"),
    (f"/ask/{ID}", b'\xff{"query": "why"}', "application/json"),
    (f"/ask/{ID}", b"[" * 100_000, "application/json"),
    (f"/ask/{ID}", b"", "application/json"),
    (f"/ask/{ID}", b"null", "application/json"),
    ("/ask/no-id", b'{"query": "why"}', "application/json"),
    ("/ask/no-id", b"{}", "application/json"),
]


@pytest.mark.parametrize(("path", "body", "media_type"), REQUESTS)
def test_query_route_matches_fastapi_route_for_any_request(path: str, body: bytes, media_type: str) -> None:
    answers = [
        client(route_class).post(path, content=body, headers={"content-type": media_type})
        for route_class in (QueryRoute, APIRoute)
    ]
    ours, theirs = ((a.status_code, a.headers["content-type"], a.content) for a in answers)
    assert ours == theirs


def test_valid_request_returns_answer() -> None:
    response = client(QueryRoute).post(f"/ask/{ID}", json={"query": "why"})
    assert response.json() == {"text": "a: whyé", "id": ID}


def test_query_route_with_extra_parameters_raises_type_error() -> None:
    with pytest.raises(TypeError, match="has parameters other than"):
        client(QueryRoute, dependencies=[Depends(lambda: None)])
    router = APIRouter(route_class=QueryRoute)

    async def ask(body: Question, limit: int = 3) -> None: ...

    with pytest.raises(TypeError, match="has parameters other than"):
        router.post("/ask")(ask)


class WithTenant:
    """Stands for the authentication, and keeps what the routes have made of a scope."""

    scopes: ClassVar[list[Any]] = []

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            authenticate(scope)
            self.scopes.append(scope)
        await self.app(scope, receive, send)


class Served(NamedTuple):
    client: TestClient
    application: Application

    def measured(self) -> list[tuple[str, dict[str, str], int]]:
        metrics = self.application.metrics
        assert isinstance(metrics, InMemoryMetrics)
        return [(name, tags, series.count) for name, tags, series in metrics.items()]


def server(route_class: type[Any]) -> Served:
    """Paths with a number and without any, as the API serves them: with what stands before its routes."""
    router = APIRouter(route_class=route_class)

    @router.post("/ask")
    async def ask(request: Request, body: Question, application: ApplicationDep, tenant: Tenant) -> Answer:
        if body.query == "fail":
            raise InvalidInputError("Not this.", field="query")
        if body.query == "bug":
            raise LookupError
        return Answer(text=f"{tenant.tenant_id}: {body.query}é", id=UUID(ID))

    @router.post("/profiles/{number}")
    async def ask_profile(
        request: Request,
        number: Annotated[int, Path(ge=0, le=9)],
        body: Question,
        application: ApplicationDep,
        tenant: Tenant,
    ) -> Answer:
        return Answer(text=f"{number}: {body.query}", id=UUID(ID))

    app = FastAPI()
    app.state.application = application = Application.build(VectorForgeConfig(database=DATABASE))
    install_problem_handlers(app)
    app.include_router(router)
    routers = Routers(app)
    routers.query_routes = {route.path: route for route in router.routes if isinstance(route, QueryRoute)}
    app.add_middleware(RoutersOnDemand, routers=routers)
    app.add_middleware(WithTenant)
    app.add_middleware(BodyLimit, max_bytes=1000, timeout_s=5)
    app.add_middleware(RequestContext)
    app.add_middleware(RequestMetrics, metrics=application.metrics)
    return Served(TestClient(app, headers={"x-request-id": "the-request"}), application)


def chunked(body: bytes) -> Iterator[bytes]:
    yield from (body[:10], body[10:])


@pytest.fixture(scope="module")
def both() -> tuple[Served, Served]:
    """With the short way, and without."""
    return server(QueryRoute), server(APIRoute)


# Issue 7, point 6: what goes past FastAPI's router is answered, measured and refused as what goes through it.
@pytest.mark.parametrize(
    "body", [*(body for _, body, _ in REQUESTS), b'{"query": "bug"}', b'{"query": "fail"}', b"x" * 2000]
)
@pytest.mark.parametrize("path", ["/ask", "/profiles/7", "/profiles/70", "/profiles/x"])
def test_query_route_fast_path_matches_router_response(
    both: tuple[Served, Served], body: bytes, path: str
) -> None:
    media_types, methods = ("application/json", "text/plain", ""), ("POST", "PUT")
    for media_type, method, in_parts in product(media_types, methods, (False, True)):
        found = []
        for served in both:
            content = chunked(body) if in_parts else body
            headers = {"content-type": media_type}
            answer = served.client.request(method, path, content=content, headers=headers)
            found.append((answer.status_code, dict(answer.headers), answer.content, served.measured()))
        assert found[0] == found[1]


def test_valid_query_bypasses_fastapi_router() -> None:
    client = server(QueryRoute).client
    assert client.post("/ask", json={"query": "why"}).status_code == 200
    assert client.post("/profiles/7", json={"query": "why"}).status_code == 200
    assert ["router" in scope for scope in WithTenant.scopes[-2:]] == [False, True]
