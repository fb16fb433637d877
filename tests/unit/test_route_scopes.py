"""The indexed scope of a path equals the result of matching every route's pattern."""

from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import compile_path

from vectorforge.api.request_state import ROUTES, required_scope
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
def test_scope_index_matches_all_patterns(method: str, segments: list[str], end: str) -> None:
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
