"""Points of streaming: tokens arrive one by one through the REST API, and through the function URL."""

import json
import time
from collections.abc import Generator
from typing import Any, Final

import httpx2

from infra.verification.points import Point, PointSkippedError, require
from infra.verification.stage import DeployedStage
from infra.verification.temporary_collection import QUESTION, ingest, temporary_collection

_SHORTEST_STREAM_S = 0.3
"""Time between the first and the last token of a model's answer, which a buffered response does not show."""
_TIMEOUT_S = 60.0


def _streamed(stage: DeployedStage) -> str:
    with stage.http() as api:
        return _spread(api)


def _streamed_by_url(stage: DeployedStage) -> str:
    """Stream as the identity of boto3's credentials, which must be one of ``iam_tenants``."""
    if stage.settings.front_door == "rest_api":
        raise PointSkippedError("the stage has no function URL")
    url = stage.outputs["FunctionUrl"].rstrip("/")
    with httpx2.Client(base_url=url, auth=SignedForLambda(stage.region), timeout=_TIMEOUT_S) as api:
        if api.get("/v1/collections").status_code in (401, 403):
            raise PointSkippedError("the credentials are not those of an identity of `iam_tenants`")
        return _spread(api)


def _spread(api: httpx2.Client) -> str:
    """Stream the answer to a query, and compare the arrival of its first and its last token."""
    body = {"query": QUESTION, "stream": True}
    with temporary_collection(api) as collection:
        ingest(api, collection)
        arrived: list[float] = []
        kinds: list[str] = []
        with api.stream("POST", "/v1/rag/query", json={**body, "collection": collection}) as response:
            require(response.status_code == 200, f"the stream: {response.status_code}")
            for line in response.iter_lines():
                if line.startswith("event: "):
                    kinds.append(line.removeprefix("event: "))
                    arrived.append(time.monotonic())
                elif kinds[-1:] == ["meta"] and line.startswith("data: "):
                    extractive = json.loads(line.removeprefix("data: "))["extractive"]
    require(kinds[:1] == ["meta"] and kinds[-1:] == ["done"], f"the events are {kinds}")
    tokens = [at for at, kind in zip(arrived, kinds, strict=True) if kind == "token"]
    require(tokens, "the answer has no token")
    if extractive:
        raise PointSkippedError("no model is configured: an extractive answer is sent at once")
    spread_s = tokens[-1] - tokens[0]
    require(spread_s >= _SHORTEST_STREAM_S, f"{len(tokens)} tokens came within {spread_s * 1000:.0f} ms")
    return f"{len(tokens)} tokens over {spread_s:.2f} s"


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
    Point("streamed", "tokens arrive one by one through the REST API", _streamed, needs_aws=True),
    Point(
        "streamed-by-url",
        "tokens arrive one by one through the function URL",
        _streamed_by_url,
        needs_aws=True,
    ),
)
