"""Inclusion of routers by the paths of requests."""

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr
from starlette.testclient import TestClient

from vectorforge import api
from vectorforge.api.app import create_app
from vectorforge.api.routers import ROUTERS, Routers
from vectorforge.bootstrap.application import Application
from vectorforge.config import DatabaseSettings, ServerSettings, VectorForgeConfig


def _routes() -> Iterator[tuple[str, str]]:
    for name in ROUTERS:
        for route in import_module(name).router.routes:
            yield name, route.path


def _paths_of(app: FastAPI) -> set[str | None]:
    return {route.path for route in iter_route_contexts(app.routes)}


def test_router_list_contains_every_module_with_a_router() -> None:
    package = Path(api.__path__[0])
    modules = {
        ".".join(("vectorforge.api", *path.relative_to(package).with_suffix("").parts))
        for path in package.rglob("*.py")
        if re.search(r"^router = ", path.read_text(), re.MULTILINE)
    }
    assert modules == set(ROUTERS)


@pytest.mark.parametrize(("name", "path"), sorted(set(_routes())))
def test_path_of_a_route_includes_its_router(name: str, path: str) -> None:
    app = FastAPI(openapi_url=None)
    # A parameter of the template matches its own placeholder.
    Routers(app).include_for(path)
    assert path in _paths_of(app), name


def test_unknown_path_includes_no_router() -> None:
    app = FastAPI(openapi_url=None)
    routers = Routers(app)
    for path in ("/wp-login.php", "/v1", "/v1/ragged", "/v1/collection", "/doc"):
        routers.include_for(path)
    assert app.routes == []


def test_router_is_included_once() -> None:
    app = FastAPI(openapi_url=None)
    routers = Routers(app)
    routers.include_for("/v1/search")
    opened = list(app.routes)
    routers.include_for("/v1/search")
    routers.include("vectorforge.api.native.search")
    assert app.routes == opened
    routers.include_all()
    every = list(app.routes)
    routers.include_all()
    assert app.routes == every


def test_import_of_the_query_handler_loads_no_router() -> None:
    code = "import sys, functions.query.handler; print(*sys.modules)"
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    ).stdout.split()
    assert "vectorforge.api.app" in found
    later = (
        *ROUTERS,
        "vectorforge.api.native.",
        "vectorforge.ingestion.",
        "vectorforge.bootstrap.tenant",
    )
    assert [name for name in found if name.startswith(later)] == []


def testseen_paths_are_bounded() -> None:  # callers choose them
    app = FastAPI(openapi_url=None)
    routers = Routers(app)
    for number in range(1000):
        routers.include_for(f"/v1/jobs/{number}")
    routers.include_for("/v1/search")
    assert {"/v1/jobs/{job_id}", "/v1/search"} <= _paths_of(app)
    assert len(routers.seen_paths) <= 100


# security 10: a route without a declared scope is not served, even if the router matches it
def test_route_without_a_scope_returns_404() -> None:
    database = DatabaseSettings(database_url=SecretStr("postgresql://nobody@127.0.0.1:1/none"))
    config = VectorForgeConfig(database=database, server=ServerSettings(auth="local"))
    app = create_app(Application.build(config))
    around, beside = APIRouter(), APIRouter(prefix="/v1/beside")
    for router, path in ((around, "/v1/around"), (beside, "/{number}")):
        router.add_api_route(path, lambda: "secret")
        app.include_router(router)
    app.add_api_route("/v1/plain", lambda: "secret")
    client = TestClient(app, base_url="http://localhost")
    for path in ("/v1/around", "/v1/beside/7", "/v1/plain", "/v1/plain%0A"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found"), path
    assert client.get("/").status_code == 200
