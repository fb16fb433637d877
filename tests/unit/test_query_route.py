"""Query routes answer any request without a key as FastAPI's own routes do."""

from typing import Any
from uuid import UUID

import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, SecretStr
from starlette.testclient import TestClient
from starlette.types import Scope

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.problems import install_problem_handlers
from vectorforge.api.querying import QueryRoute
from vectorforge.api.request_state import RequestState
from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings, VectorForgeConfig
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
