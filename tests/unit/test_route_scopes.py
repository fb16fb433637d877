"""The scope of a path equals the result of matching every route's pattern."""

from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import compile_path

from vectorforge.api.request_state import ROUTES, escape_collection, required_scope
from vectorforge.runtime.http_event import read_event
from vectorforge.types import Scope

ALL = [
    (method, compile_path(path)[0], scope)
    for scope, routes in ROUTES.items()
    for route in routes
    for method, path in [route.split(" ", 1)]
]
METHODS = sorted({method for method, _, _ in ALL})
SEGMENTS = sorted({segment for routes in ROUTES.values() for route in routes for segment in route.split("/")})
LITERALS = [segment.partition(" ")[0] for segment in SEGMENTS if "{" not in segment]
ENDS = st.sampled_from(["", "/", "\n", "\n\n", "/\n"])


def matched(method: str, path: str) -> Scope | None:
    """Match all patterns in sequence, as the router does."""
    found = [scope for known, pattern, scope in ALL if known == method and pattern.match(path)]
    return max(found, key=lambda scope: len(scope.included), default=None)


@given(
    st.sampled_from(METHODS),
    st.lists(st.sampled_from([*LITERALS, "x", "a b", "x\n", "..", "%2f"]), max_size=6),
    ENDS,
)
def test_scope_matches_all_patterns(method: str, segments: list[str], end: str) -> None:
    for path in ("/" + "/".join(segments) + end, "/v1/" + "/".join(segments) + end):
        exact = required_scope(method, path)
        assert exact is matched(method, path), path


def test_routes_require_their_scope_for_any_path_ending() -> None:
    for scope, routes in ROUTES.items():
        for route in routes:
            method, path = route.split(" ", 1)
            filled = path.replace("{model:path}", "a/b/c").replace("{", "").replace("}", "")
            for end in ("", "\n"):
                found = required_scope(method, filled + end)
                assert found is not None, route
                assert scope.included <= found.included, (route, end)


@given(st.text(min_size=1), st.sampled_from(["", "/documents", "/query"]), st.sampled_from(["", "/dev"]))
def test_collection_name_is_one_segment_of_path(name: str, below: str, root: str) -> None:
    raw_path = f"{root}/v1/collections/{quote(name, safe='', errors='replace')}{below}"
    scope: dict[str, Any] = {
        "type": "http",
        "root_path": root,
        "path": unquote(raw_path),
        "raw_path": raw_path.encode(),
    }
    escape_collection(scope)
    segment = scope["path"].removeprefix(f"{root}/v1/collections/").removesuffix(below)
    assert "/" not in segment
    assert unquote(segment) == unquote(quote(name, errors="replace"))


@pytest.mark.parametrize(
    ("path", "raw_path", "expected"),
    [
        ("/v1/collections/a/b", None, "/v1/collections/a/b"),  # unknown what the client escaped
        ("/v1/collections/a%2Fb", None, "/v1/collections/a%252Fb"),
        ("/v1/collections/a/documents", b"/v1/collections/b%2Fdocuments", "/v1/collections/a/documents"),
        ("/v1/models/a/b", b"/v1/models/a%2Fb", "/v1/models/a/b"),
        ("/v1/collections", b"/v1/collections", "/v1/collections"),
        ("/v1/collections/", b"/v1/collections/", "/v1/collections/"),
        ("/v1/collections/a/b", b"/v1/%63ollections/a%2Fb", "/v1/collections/a/b"),
    ],
)
def test_only_names_of_collections_are_escaped(path: str, raw_path: bytes | None, expected: str) -> None:
    scope = {"type": "http", "path": path, "raw_path": raw_path}
    escape_collection(scope)
    assert scope["path"] == expected


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_collection_name_of_lambda_event_is_one_segment(version: str) -> None:
    path = "/v1/collections/a%2Fb/documents"
    http = {"method": "GET", "path": path, "sourceIp": "198.51.100.7"}
    event = {
        "version": version,
        "httpMethod": "GET",
        "path": path,
        "requestContext": {"stage": "$default", "path": path, "identity": {}, "http": http},
    }
    scope = read_event(event, None, "/").scope
    assert scope["path"] == "/v1/collections/a/b/documents"
    escape_collection(scope)
    assert scope["path"] == path
