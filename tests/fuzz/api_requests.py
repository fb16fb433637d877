"""Valid and invalid requests generated from the OpenAPI document (schemathesis), sent to a running server.

Each response has no 500, no other 5xx without problem details, a status code and a content type that the
document defines for the route, and a body that matches its schema.
"""

import asyncio
import logging
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisException
from schemathesis import GenerationMode
from schemathesis.checks import CheckFunction
from schemathesis.config import SchemathesisConfig
from schemathesis.core import NOT_SET
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Err
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.api_bodies import known_body, overlaid, tampered
from tests.fuzz.api_furniture import Furniture, furnish
from tests.fuzz.api_server import ApiServer, headers_of
from tests.fuzz.closed_responses import closed

logger = logging.getLogger(__name__)

_CHECKS: list[CheckFunction] = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
_TIMEOUT_S = 60
_KNOWN_ID_SHARE = 0.7
"""Share of existing ids in paths and bodies. Random ones are not found, and end early."""
_NO_HTTP = "Invalid HTTP request received."
"""The HTTP server's own response to invalid headers, which the API never sees."""
_ENDS_A_TENANT = frozenset({"DELETE /v1/tenant"})
"""Operations of another tenant, since they would leave no data for the others."""
_STRANGERS: Sequence[Mapping[str, str]] = (
    {},
    {"Authorization": "Bearer key-of-nobody"},
    {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."},
    {"Authorization": "Basic QWxhZGRpbg=="},
    {"X-API-Key": "vf_0123456789abcdef_" + "0" * 43},
)
_ODD_HEADERS: Sequence[Mapping[str, str]] = (
    {"X-Request-ID": "\u00ff" * 300},
    {"Last-Event-ID": "9" * 11},
    {"Last-Event-ID": "-1"},
    {"Accept": "text/event-stream"},
    {"Accept": "application/octet-stream"},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Encoding": "gzip"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Traceparent": "00-" + "f" * 32 + "-" + "0" * 16 + "-ff"},
    {"Expect": "100-continue"},
)
_ODD_SHARE = 0.05
_ODD_TEXTS = (
    "",
    "\x00",
    "9" * 5000,
    "1e400",
    "NaN",
    "-1",
    "\u0661",
    "null",
    "[" * 5000,
    "0001-01-01T00:00:00+23:59",
)
_ROUND = 40
"""Cases of an operation between two refills, since requests delete objects."""


@dataclass
class ApiFindings:
    """Result of a run."""

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    """Number of responses by operation and status."""
    problems: dict[str, str] = field(default_factory=dict)
    """Problem -> an example request and response."""

    @property
    def cases(self) -> int:
        """Return the number of requests sent."""
        return self.total.total()

    @property
    def total(self) -> Counter[int]:
        """Return the number of responses by status."""
        return sum(self.statuses.values(), Counter())

    @property
    def never_well(self) -> list[str]:
        """Return the operations that never succeeded."""
        return [one for one, seen in self.statuses.items() if not any(200 <= status < 300 for status in seen)]


class _Sender:
    """Sends cases and records problems; its methods are called from several threads."""

    def __init__(self, server: ApiServer, on_case: Callable[[], None]) -> None:
        self.findings = ApiFindings()
        self.furniture = Furniture({}, {}, {})
        self._server = server
        self._on_case = on_case
        self._local = threading.local()

    def send(self, case: Any, chance: random.Random) -> None:
        operation = case.operation.label
        known = self.furniture.known_to(operation)
        _put_ids(case, known, chance)
        raw = _change_body(case, known_body(operation, known, chance), chance)
        if raw is None:
            more: dict[str, Any] = {}
        else:
            more = {"data": raw, "headers": {"Content-Type": "application/json"}}
        more["headers"] = {**more.get("headers", {}), **self._headers(operation, chance)}
        session = self._local.__dict__.setdefault("session", requests.Session())
        try:
            response = case.call(session=session, timeout=_TIMEOUT_S, allow_redirects=False, **more)
        except requests.RequestException as exc:
            self._note(operation, 0, {f"{operation}: {type(exc).__name__}": repr(case)})
            return
        self._note(operation, response.status_code, _wrong(operation, case, response, raw))

    def _headers(self, operation: str, chance: random.Random) -> dict[str, str]:
        """Return the tenant's headers, or sometimes another caller's or odd ones."""
        if operation in _ENDS_A_TENANT:
            return headers_of(self._server.spare)
        if (kind := chance.random()) < 0.85:
            return self._server.headers
        if kind < 0.90:
            return {**self._server.headers, **chance.choice(_ODD_HEADERS)}
        return dict(chance.choice((*_STRANGERS, self.furniture.reader)))

    def _note(self, operation: str, status: int, wrong: Mapping[str, str]) -> None:
        self.findings.statuses[operation][status] += 1
        for what, example in wrong.items():
            if what not in self.findings.problems:
                logger.warning("Found: %s\n%s", what, example)  # a run takes long
            self.findings.problems.setdefault(what, example)
        self._on_case()


def _change_body(case: Any, known: dict[str, Any] | None, chance: random.Random) -> bytes | None:
    """Sometimes replace the body by a valid one, or by raw content."""
    kind = chance.random()
    if known is None or kind < 0.5:
        return None
    if kind < 0.8:
        case.body, case.media_type = overlaid(known, case.body, chance), "application/json"
        return None
    case.body = NOT_SET
    return tampered(known, chance)


def _wrong(where: str, case: Any, response: Any, raw: bytes | None) -> dict[str, str]:
    found: list[str] = []
    status = response.status_code
    text = response.content.decode(errors="replace")  # an image, for one
    if text == _NO_HTTP:
        return {}
    if status == 500:
        found.append(f"{where}: 500")
    if status > 500 and '"code"' not in text:
        found.append(f"{where}: {status} without problem details")
    try:
        case.validate_response(response, checks=_CHECKS)
    except FailureGroup as group:
        found += [_named(where, status, failure) for failure in group.exceptions]
    except Failure as failure:
        found.append(_named(where, status, failure))
    sent = "" if raw is None else f"\n  body {raw[:600]!r}"
    shown = f"{case.as_curl_command()[:2000]}{sent}\n  -> {status} {text[:600]}" if found else ""
    return dict.fromkeys(found, shown)


def _named(where: str, status: int, failure: BaseException) -> str:
    return f"{where}: {status}: {getattr(failure, 'title', type(failure).__name__)}"


def _put_ids(case: Any, known: Mapping[str, Any], chance: random.Random) -> None:
    """Set existing ids in most cases, and invalid parameters in a few."""
    for values in (case.path_parameters, case.query, case.body):
        if isinstance(values, dict):
            for name in values.keys() & known.keys():
                if chance.random() < _KNOWN_ID_SHARE:
                    values[name] = known[name]
    if (names := [one.name for one in case.operation.query]) and chance.random() < _ODD_SHARE:
        case.query = {**(case.query or {}), chance.choice(names): chance.choice(_ODD_TEXTS)}


def _run_operation(operation: Any, sender: _Sender, *, cases: int, seed_of: str) -> None:
    chance = random.Random(seed_of)
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @seed(chance.getrandbits(64))
        @settings(
            max_examples=max(1, cases // 2),
            deadline=None,
            database=None,
            phases=[Phase.generate],  # findings are recorded without shrinking
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case: Any) -> None:
            sender.send(case, chance)

        try:
            run()
        except HypothesisException:
            continue  # an operation without parameters has no invalid requests


def _run_round(operations: Sequence[Any], sender: _Sender, cases: int, seed_of: str) -> None:
    """Run all operations, the most destructive ones last.

    In one thread: CPython 3.11 may not parse in several, and Hypothesis reads the source of lambdas
    (https://github.com/python/cpython/issues/106905).
    """
    for operation in sorted(operations, key=_how_much_ends):
        _run_operation(operation, sender, cases=cases, seed_of=f"{seed_of}-{operation.label}")


def _how_much_ends(operation: Any) -> int:
    """Return the amount deleted by an operation: 0 none, 1 an object, 2 a whole collection."""
    if operation.method.upper() == "DELETE":
        return 2 if operation.path.endswith(("{collection_id}", "{vector_store_id}")) else 1
    return 1 if operation.path.endswith(("/finish", "/cancel")) else 0


async def fuzz_api(
    server: ApiServer,
    *,
    cases: int,
    seed_number: int,
    only: str = "",
    on_case: Callable[[], None] = lambda: None,
) -> ApiFindings:
    """Send at least ``cases`` requests, in rounds over all operations.

    Args:
        server: The running server.
        cases: Minimum number of requests.
        seed_number: Equal numbers generate equal requests, except for ids.
        only: Operations whose method and path contain this.
        on_case: Called after each request, from another thread.

    Returns:
        The result; a request without a response within 60 s counts as status 0.
    """
    sender = _Sender(server, on_case)
    operations = await asyncio.to_thread(_load, server, only)
    if not operations:
        raise ValueError(f"No operation contains {only!r}.")
    sender.findings.statuses = {one.label: Counter() for one in operations}
    number = 0
    while (missing := cases - sender.findings.cases) > 0:
        sender.furniture = await furnish(server)
        share = min(_ROUND, max(2, -(-missing // len(operations))))
        await asyncio.to_thread(_run_round, operations, sender, share, f"{seed_number}-{number}")
        number += 1
    return sender.findings


def _load(server: ApiServer, only: str) -> list[Any]:
    document = requests.get(f"{server.url}/openapi.json", timeout=_TIMEOUT_S).json()
    schema = schemathesis.openapi.from_dict(closed(document), config=SchemathesisConfig())
    schema.config.update(base_url=server.url)
    found: list[Any] = []
    for result in schema.get_all_operations():
        if isinstance(result, Err):
            raise result.err()
        found.append(result.ok())
    return [one for one in found if only in one.label]
