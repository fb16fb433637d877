"""Doors are opened by the paths that lead to them, and only by these."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from pydantic import SecretStr
from starlette.testclient import TestClient

from vectorforge import api
from vectorforge.api.app import create_app
from vectorforge.api.routers import DOORS, Routers, load_router
from vectorforge.bootstrap.application import Application
from vectorforge.config import DatabaseSettings, ServerSettings, VectorForgeConfig


def _routes() -> Iterator[tuple[str, str]]:
    for name in DOORS:
        for route in load_router(name).router.routes:
            yield name, route.path


def _paths_of(app: FastAPI) -> set[str | None]:
    return {route.path for route in iter_route_contexts(app.routes)}


def test_every_module_with_a_router_is_listed() -> None:
    package = Path(api.__path__[0])
    modules = {
        ".".join(("vectorforge.api", *path.relative_to(package).with_suffix("").parts))
        for path in package.rglob("*.py")
        if re.search(r"^router = ", path.read_text(), re.MULTILINE)
    }
    assert modules == set(DOORS)


@pytest.mark.parametrize(("name", "path"), sorted(set(_routes())))
def test_a_path_opens_the_door_that_serves_it(name: str, path: str) -> None:
    app = FastAPI(openapi_url=None)
    # What stands for a parameter in the template stands for itself in a path.
    Routers(app).open_for(path)
    assert path in _paths_of(app), name


def test_a_path_that_nothing_serves_opens_no_door() -> None:
    app = FastAPI(openapi_url=None)
    doors = Routers(app)
    for path in ("/wp-login.php", "/v1", "/v1/ragged", "/v1/collection", "/docs"):
        doors.open_for(path)
    assert app.routes == []


def test_a_door_is_opened_once() -> None:
    app = FastAPI(openapi_url=None)
    doors = Routers(app)
    doors.open_for("/v1/search")
    opened = list(app.routes)
    doors.open_for("/v1/search")
    doors.open("vectorforge.api.native.search")
    assert app.routes == opened
    doors.open_all()
    doors.open_all()
    assert len(app.routes) == len(DOORS)


def test_importing_the_api_builds_the_models_of_no_door() -> None:
    code = "import sys, functions.query.handler; print(*sys.modules)"
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root
    ).stdout.split()
    assert "vectorforge.api.app" in found
    later = ("vectorforge.api.routes.", "vectorforge.ingestion.", "vectorforge.bootstrap.tenant")
    assert [name for name in found if name.startswith(later)] == []


def test_paths_that_are_remembered_are_few() -> None:  # callers choose them
    app = FastAPI(openapi_url=None)
    doors = Routers(app)
    for number in range(1000):
        doors.open_for(f"/v1/jobs/{number}")
    doors.open_for("/v1/search")
    assert {"/v1/jobs/{job_id}", "/v1/search"} <= _paths_of(app)
    assert len(doors._asked_for) <= 100


# security 10: what no scope is written for is served to nobody, even if the router knows it
def test_a_route_without_a_scope_is_no_route() -> None:
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
