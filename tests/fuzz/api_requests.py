"""Requests made of the OpenAPI document, valid and not, sent to a running server (schemathesis).

Of each response: no 500, no other 5xx without problem details, a status code and a content type that the
document names for the route, and a body as its schema says.
"""

import asyncio
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
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.core.result import Err
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.api_server import ApiServer, furnish

_CHECKS: list[CheckFunction] = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
_TIMEOUT_S = 60
_KNOWN_ID_SHARE = 0.7
"""Of the ids in paths and bodies: those of something that exists. Random ones find nothing, and end early."""
_NO_HTTP = "Invalid HTTP request received."
"""The HTTP server's own answer to headers that HTTP does not allow; the API never sees them."""
_ROUND = 40
"""Cases of an operation between two times of furnishing: what is there gets deleted on the way."""


@dataclass
class ApiFindings:
    """What came of it."""

    operations: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    """What is wrong -> one request and response that show it."""

    @property
    def cases(self) -> int:
        """Requests sent."""
        return self.statuses.total()


class _Sender:
    """Sends cases and keeps what is wrong; its methods are called from several threads."""

    def __init__(self, server: ApiServer, on_case: Callable[[], None]) -> None:
        self.findings = ApiFindings()
        self.ids: Mapping[str, str] = {}
        self._server = server
        self._on_case = on_case
        self._local = threading.local()

    def send(self, case: Any, chance: random.Random) -> None:
        _put_ids(case, self.ids, chance)
        session = self._local.__dict__.setdefault("session", requests.Session())
        where = f"{case.method} {case.path}"
        try:
            response = case.call(
                session=session, headers=self._server.headers, timeout=_TIMEOUT_S, allow_redirects=False
            )
        except requests.RequestException as exc:
            self._note(0, {f"{where}: {type(exc).__name__}": repr(case)})
            return
        self._note(response.status_code, _wrong(where, case, response))

    def _note(self, status: int, wrong: Mapping[str, str]) -> None:
        self.findings.statuses[status] += 1
        for what, example in wrong.items():
            self.findings.problems.setdefault(what, example)
        self._on_case()


def _wrong(where: str, case: Any, response: Any) -> dict[str, str]:
    found: list[str] = []
    status = response.status_code
    if response.text == _NO_HTTP:
        return {}
    if status == 500:
        found.append(f"{where}: 500")
    if status > 500 and '"code"' not in response.text:
        found.append(f"{where}: {status} without problem details")
    try:
        case.validate_response(response, checks=_CHECKS)
    except FailureGroup as group:
        found += [_named(where, status, failure) for failure in group.exceptions]
    except Failure as failure:
        found.append(_named(where, status, failure))
    shown = f"{case.as_curl_command()}\n  -> {status} {response.text[:600]}" if found else ""
    return dict.fromkeys(found, shown)


def _named(where: str, status: int, failure: BaseException) -> str:
    return f"{where}: {status}: {getattr(failure, 'title', type(failure).__name__)}"


def _put_ids(case: Any, ids: Mapping[str, str], chance: random.Random) -> None:
    """Let most cases meet something that exists."""
    for values in (case.path_parameters, case.query, case.body):
        if isinstance(values, dict):
            for name in values.keys() & ids.keys():
                if chance.random() < _KNOWN_ID_SHARE:
                    values[name] = ids[name]


def _run_operation(operation: Any, sender: _Sender, *, cases: int, seed_of: str) -> None:
    chance = random.Random(seed_of)
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

        @seed(chance.getrandbits(64))
        @settings(
            max_examples=max(1, cases // 2),
            deadline=None,
            database=None,
            phases=[Phase.generate],  # what is found is noted and not made smaller
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def run(case: Any) -> None:
            sender.send(case, chance)

        try:
            run()
        except HypothesisException:
            continue  # an operation without parameters cannot be asked wrongly


def _run_round(operations: Sequence[Any], sender: _Sender, cases: int, seed_of: str) -> None:
    """All operations, those last that delete.

    In one thread: CPython 3.11 may not parse in several, and Hypothesis reads the source of lambdas
    (https://github.com/python/cpython/issues/106905).
    """
    for operation in sorted(operations, key=lambda one: one.method.upper() == "DELETE"):
        _run_operation(operation, sender, cases=cases, seed_of=f"{seed_of}-{operation.label}")


async def fuzz_api(
    server: ApiServer,
    *,
    cases: int,
    seed_number: int,
    only: str = "",
    on_case: Callable[[], None] = lambda: None,
) -> ApiFindings:
    """Send requests until there were ``cases``, in rounds over all operations.

    Args:
        server: It runs.
        cases: How many at least.
        seed_number: The same number makes the same requests but for the ids in them.
        only: Operations whose method and path contain this.
        on_case: Called after each, from another thread.

    Returns:
        What came of it; a request that was not answered within 60 s counts as status 0.
    """
    sender = _Sender(server, on_case)
    operations = await asyncio.to_thread(_load, server, only)
    if not operations:
        raise ValueError(f"No operation contains {only!r}.")
    sender.findings.operations = len(operations)
    number = 0
    while (missing := cases - sender.findings.cases) > 0:
        sender.ids = await furnish(server)
        share = min(_ROUND, max(2, -(-missing // len(operations))))
        await asyncio.to_thread(_run_round, operations, sender, share, f"{seed_number}-{number}")
        number += 1
    return sender.findings


def _load(server: ApiServer, only: str) -> list[Any]:
    document = requests.get(f"{server.url}/openapi.json", timeout=_TIMEOUT_S).json()
    schema = schemathesis.openapi.from_dict(document, config=SchemathesisConfig())
    schema.config.update(base_url=server.url)
    found: list[Any] = []
    for result in schema.get_all_operations():
        if isinstance(result, Err):
            raise result.err()
        found.append(result.ok())
    return [one for one in found if only in one.label]
