"""Points of the front doors: streams through the REST API and the function URL, and names with a slash."""

import json
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from urllib.parse import quote

import httpx2

from infra.doctor.machine import has_address
from infra.verification.points import AwsPoint, Point, PointFailedError, PointSkippedError, require
from infra.verification.stage import DeployedStage
from infra.verification.temporary_collection import FACT, QUESTION, ask, ingest, temporary_collection

_SHORTEST_STREAM_S = 0.3
"""Time between the first and the last token of a model's answer, which a buffered response does not show."""
_STOPS_WITHIN_S = 2.0
"""The generating process learns of a stop within half a second; an answer may end before."""
_LONG_QUERY = f"{QUESTION} Repeat the whole answer in twenty different wordings."
_TIMEOUT_S = 60.0


def _through(
    door: Callable[[DeployedStage], AbstractContextManager[httpx2.Client]],
    check: Callable[[httpx2.Client], str],
) -> Callable[[DeployedStage], str]:
    def checked(stage: DeployedStage) -> str:
        with door(stage) as api:
            return check(api)

    return checked


@contextmanager
def _function_url(stage: DeployedStage) -> Iterator[httpx2.Client]:
    """Call as the identity of boto3's credentials, which must be one of ``iam_tenants``."""
    if stage.settings.front_door == "rest_api":
        raise PointSkippedError("the stage has no function URL")
    url = stage.outputs["FunctionUrl"].rstrip("/")
    with httpx2.Client(base_url=url, auth=SignedForLambda(stage.region), timeout=_TIMEOUT_S) as api:
        if api.get("/v1/collections").status_code in (401, 403):
            raise PointSkippedError("the credentials are not those of an identity of `iam_tenants`")
        yield api


@contextmanager
def _domain(stage: DeployedStage) -> Iterator[httpx2.Client]:
    url = _domain_url(stage)
    with stage.http() as api:
        api.base_url = url
        yield api


def _domain_url(stage: DeployedStage) -> str:
    if stage.settings.domain is None:
        raise PointSkippedError("the stage has no `domain`")
    return f"https://{stage.settings.domain.name}"


def domain_answers(stage: DeployedStage, urls: Mapping[str, str] | None = None) -> str:
    """Ask the domain for /health over IPv4 and IPv6; ``urls`` by "IPv4" and "IPv6" replace its own."""
    seen = []
    for version, family, any_address in (
        ("IPv4", socket.AF_INET, "0.0.0.0"),  # noqa: S104 - of a client
        ("IPv6", socket.AF_INET6, "::"),
    ):
        url = (urls or {}).get(version) or _domain_url(stage)
        transport = httpx2.HTTPTransport(local_address=any_address)
        with httpx2.Client(transport=transport, timeout=_TIMEOUT_S) as api:
            try:
                status = api.get(f"{url}/health").status_code
            except httpx2.ConnectError:
                require(has_address(httpx2.URL(url).host, family), f"no address by {version}")
                raise PointSkippedError(f"this machine cannot connect by {version}") from None
        require(status == 200, f"GET /health by {version}: {status}")
        seen.append(f"{version} {status}")
    return ", ".join(seen)


def _found_by_name(api: httpx2.Client) -> str:
    with temporary_collection(api, suffix="/a b") as collection:
        name = api.get(f"/v1/collections/{collection}").json()["name"]
        answer = api.get(f"/v1/collections/{quote(name, safe='')}")
        require(answer.status_code == 200, f"GET by the encoded name: {answer.status_code}, not 200")
    return "GET by a name with %2F and %20: 200"


def _spread(api: httpx2.Client) -> str:
    """Stream the answer to a query, and compare the arrival of its first and its last token."""
    with _begun(api) as (_, _, events):
        arrived = [(kind, time.monotonic()) for _, kind, _ in events]
    tokens = [at for kind, at in arrived if kind == "token"]
    require(arrived[-1:] and arrived[-1][0] == "done", f"the events are {[kind for kind, _ in arrived]}")
    require(tokens, "the answer has no token")
    spread_s = tokens[-1] - tokens[0]
    require(spread_s >= _SHORTEST_STREAM_S, f"{len(tokens)} tokens came within {spread_s * 1000:.0f} ms")
    return f"{len(tokens)} tokens over {spread_s:.2f} s"


def _abandoned(stage: DeployedStage) -> str:
    """Close a stream after its first token; AWS lets the function generate to the end all the same."""
    with stage.http() as api, _begun(api) as (response, meta, events):
        _first_token(events)
        response.close()
        for number in (1, 2, 3):
            answer = ask(api, meta["collection_id"])["response"]
            require(FACT in answer, f"the answer of query {number} after it is {answer[:200]!r}")
    return "closed after the first token; 3 queries after it were answered"


def _resumed(stage: DeployedStage) -> str:
    with stage.http() as api, _begun(api, resumable=True) as (response, meta, events):
        last = _first_token(events)
        response.close()
        path = f"/v1/queries/{meta['request_id']}/events"
        with api.stream("GET", path, headers={"Last-Event-ID": str(last)}) as again:
            require(again.status_code == 200, f"GET .../events: {again.status_code}")
            rest = list(_events(again.iter_lines()))
    numbers, kinds = [number for number, _, _ in rest], [kind for _, kind, _ in rest]
    require(numbers == [*range(last + 1, last + 1 + len(rest))], f"after event {last} came {numbers}")
    require("token" in kinds and kinds[-1] == "done", f"after the disconnect came {kinds}")
    reason = rest[-1][2]["finish_reason"]
    require(reason != "stopped", "the answer was stopped at the disconnect")
    return f'read to event {last}, then from another response to {numbers[-1]}: done, "{reason}"'


def _stopped(stage: DeployedStage) -> str:
    with stage.http() as api, _begun(api, query=_LONG_QUERY, resumable=True) as (_, meta, events):
        _first_token(events)
        began = time.monotonic()
        status = api.post(f"/v1/queries/{meta['request_id']}/stop").status_code
        _, kind, data = [(0, "nothing", None), *events][-1]
        took_s = time.monotonic() - began
    require(status in (202, 204), f"POST .../stop: {status}")
    require(kind == "done", f"the last event is {kind}")
    if data["finish_reason"] != "stopped" and took_s < _STOPS_WITHIN_S:
        raise PointSkippedError("the model's answer ended before it could be stopped: repeat")
    require(data["finish_reason"] == "stopped", f'"{data["finish_reason"]}" {took_s:.1f} s after the stop')
    return f'"stopped" {took_s:.1f} s after POST .../stop'


@contextmanager
def _begun(
    api: httpx2.Client, **options: Any
) -> Iterator[tuple[httpx2.Response, dict[str, Any], Iterator[tuple[int, str, Any]]]]:
    """Stream a model's answer; yield the response, the data of ``meta``, and the events after it."""
    with temporary_collection(api) as collection:
        ingest(api, collection)
        body = {"query": QUESTION, "collection": collection, "stream": True, **options}
        with api.stream("POST", "/v1/rag/query", json=body) as response:
            require(response.status_code == 200, f"the stream: {response.status_code}")
            events = _events(response.iter_lines())
            _, kind, meta = next(events)
            require(kind == "meta", f"the first event is {kind}")
            if meta["extractive"]:
                raise PointSkippedError("no model is configured: an extractive answer is sent at once")
            yield response, meta, events


def _events(lines: Iterable[str]) -> Iterator[tuple[int, str, Any]]:
    """Yield number, kind and data of each event as it arrives."""
    kind, data = "", None
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            kind = value
        elif field == "data":
            data = json.loads(value)
        elif field == "id":
            yield int(value), kind, data


def _first_token(events: Iterator[tuple[int, str, Any]]) -> int:
    """Read up to the first token, and return its number."""
    for number, kind, _ in events:
        if kind == "token":
            return number
    raise PointFailedError("the answer has no token")


class SignedForLambda(httpx2.Auth):
    """Signs requests to a function URL (Signature Version 4) with the credentials of boto3's chain.

    Args:
        region: Region of the function.
    """

    requires_request_body = True

    def __init__(self, region: str) -> None:
        import boto3

        self._region = region
        self._credentials: Any = boto3.session.Session(region_name=region).get_credentials()

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Add the signature's headers."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        signed = AWSRequest(
            method=request.method,
            url=str(request.url),
            data=request.content,
            headers={"Host": request.url.netloc.decode()},
        )
        SigV4Auth(self._credentials, "lambda", self._region).add_auth(signed)
        request.headers.update(dict(signed.headers))
        yield request


STREAM_POINTS: Final = (
    Point("slash", "a slash stays encoded at the REST API", _through(DeployedStage.http, _found_by_name)),
    AwsPoint("slash-by-url", "a slash stays encoded at the URL", _through(_function_url, _found_by_name)),
    AwsPoint("streamed", "tokens arrive one by one at the REST API", _through(DeployedStage.http, _spread)),
    AwsPoint("streamed-by-url", "tokens arrive one by one at the URL", _through(_function_url, _spread)),
    AwsPoint("domain", "the custom domain answers by IPv4 and IPv6", domain_answers),
    AwsPoint("streamed-by-domain", "tokens arrive one by one at it", _through(_domain, _spread)),
    AwsPoint("abandoned", "after an abandoned query the next ones are answered", _abandoned),
    AwsPoint("resumed", "a resumable answer is read to its end after a disconnect", _resumed),
    AwsPoint("stopped", "POST .../stop ends a resumable answer", _stopped),
)
