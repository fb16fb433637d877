"""Points that callers see: keys, tenants, ingestion, citations, uploads, originals, the query log."""

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpx2

from infra.verification.points import AwsPoint, Point, PointSkippedError, require, wait_for
from infra.verification.stage import TOKENS, DeployedStage
from infra.verification.temporary_collection import FACT, ask, ingest, temporary_collection

_WITHIN_S = 360
"""Loads take a minute; the ingest function deletes objects every five minutes."""


def _health(stage: DeployedStage) -> str:
    parts = deep_health(stage)
    broken = [f"{part['name']}: {part['detail']}" for part in parts if not part["healthy"]]
    require(not broken, "; ".join(broken))
    return "healthy: " + ", ".join(part["name"] for part in parts)


def _one_round_trip(stage: DeployedStage) -> str:
    details = [part["detail"] for part in deep_health(stage) if part["name"] == "database.transactions"]
    require("one round trip" in str(details), f"database.transactions: {details}")
    return str(details[0])


def deep_health(stage: DeployedStage) -> list[dict[str, Any]]:
    """Return the health of the function's parts, as a tenant sees it."""
    if stage.settings.has_gateway_keys:
        _, text = stage.query_function.request("GET", "/health", query={"deep": "1"}, expected=(200,))
    else:  # the function itself verifies tokens, also on public paths
        with stage.http() as api:
            answer = api.get("/health", params={"deep": "1"})
        require(answer.status_code == 200, f"GET /health: {answer.status_code}")
        text = answer.text
    parts: list[dict[str, Any]] = json.loads(text)["components"]
    return parts


def _keys(stage: DeployedStage) -> str:
    seen = []
    for described, key in (("without a key", ""), ("with a wrong key", "wrong" * 8), ("with a key", None)):
        with stage.http(key=key) as api:
            answer = api.get("/v1/collections")
        expected = 200 if key is None else 401
        require(answer.status_code == expected, f"{described}: {answer.status_code}, not {expected}")
        if expected == 401 and not stage.is_emulated:  # LocalStack sends no content type of its responses
            media_type = answer.headers.get("content-type", "")
            require("problem+json" in media_type, f"{described}: 401 as {media_type}")
        seen.append(f"{described} {answer.status_code}")
    return ", ".join(seen)


def _bearer(stage: DeployedStage) -> str:
    if not stage.settings.has_authorizer:
        raise PointSkippedError("the stage has no authorizer")
    key = next(iter(stage.keys.values()))
    with stage.http(key="") as api:
        answer = api.get("/v1/collections", headers={"authorization": f"Bearer {key}"})
    require(answer.status_code == 200, f"Authorization: Bearer: {answer.status_code}")
    return "Authorization: Bearer 200"


def _tenants(stage: DeployedStage) -> str:
    if len(stage.credentials) < 2:
        where = "`tenants` in infra/settings.py" if stage.settings.has_gateway_keys else TOKENS
        raise PointSkippedError(f"there is one tenant; add another to {where}")
    owner, stranger = list(stage.credentials)[:2]
    with (
        stage.http(tenant=owner) as api,
        temporary_collection(api) as collection,
        stage.http(tenant=stranger) as other,
    ):
        answer = other.get(f"/v1/collections/{collection}")
        listed = [one["id"] for one in other.get("/v1/collections").json()["collections"]]
    require(answer.status_code == 404, f"another tenant's collection: {answer.status_code}, not 404")
    require(collection not in listed, "another tenant's collection is listed")
    return "another tenant's collection: 404, and not listed"


def _cited(stage: DeployedStage) -> str:
    with stage.http() as api, temporary_collection(api) as collection:
        began = time.monotonic()
        ingest(api, collection)
        ingested_s = time.monotonic() - began
        answer = ask(api, collection)
        require(FACT in answer["response"], f"the answer is {answer['response'][:200]!r}")
        require(answer["citations"], "the answer has no citation")
        query_id = answer["id"].removeprefix("ragq_")

        def ended() -> str | None:
            entry = api.get(f"/v1/queries/{query_id}")
            found = entry.json().get("outcome") if entry.status_code == 200 else None
            return found if found not in (None, "started") else None

        outcome = wait_for(ended, what="the row of the query log")
    require(outcome == "answered", f"the query log says {outcome}")
    return f"ingested in {ingested_s:.1f} s, cited, and logged as {outcome}"


def _upload(stage: DeployedStage) -> str:
    with stage.http() as api, temporary_collection(api) as collection, _form(stage, api, collection) as form:
        fields = form["fields"]
        policy = base64.b64encode(base64.b64decode(fields["policy"]) + b" ").decode()
        altered = {
            "another key": ({"key": f"{fields['key']}-other"}, FACT),
            "a larger file": ({}, f"{FACT}!"),
            "another policy": ({"policy": policy}, FACT),
            "an added field": ({"acl": "public-read"}, FACT),
        }
        if stage.is_emulated:  # LocalStack accepts both
            del altered["another policy"], altered["an added field"]
        seen = []
        for what, (changed, text) in altered.items():
            status = _post(form["url"], fields | changed, text)
            require(status in (400, 403), f"{what}: {status}, not 400 or 403")
            seen.append(f"{what} {status}")
        accepted = _ingested(api, collection, form)
    return f"signed form {accepted}, document ingested; {', '.join(seen)}"


def _original(stage: DeployedStage) -> str:
    with stage.http() as api, temporary_collection(api) as collection:
        ingest(api, collection)
        [document] = api.get(f"/v1/collections/{collection}/documents").json()["documents"]
        path = f"/v1/documents/{document['id']}/original"
        answer = api.get(path, params={"redirect": "false"})
        link = answer.headers.get("location", "")
        require(link, f"GET .../original: {answer.status_code} without a link")
        found = httpx2.get(link)
        kind = found.headers.get("content-disposition", "")
        is_attached = found.text == FACT and kind.startswith("attachment")
        require(is_attached, f"the link: {found.status_code} with the disposition {kind!r}")
        api.delete(f"/v1/documents/{document['id']}")
        gone = api.get(path).status_code
        require(gone == 404, f"after the deletion of its document: {gone}, not 404")
    seen = "downloaded from S3 as an attachment; 404 after its document's deletion"
    if stage.is_emulated:
        return f"{seen}; whether the object is deleted needs AWS"
    # The link expires after five minutes.
    bucket = stage.variables("query")["VECTORFORGE_ORIGINALS_BUCKET"]
    key = unquote(urlsplit(link).path).removeprefix(f"/{bucket}").removeprefix("/")
    look = partial(stage.aws("s3").list_objects_v2, Bucket=bucket, Prefix=key)
    wait_for(
        lambda: None if look()["KeyCount"] else True, what="the deletion of the object", seconds=_WITHIN_S
    )
    return f"{seen}, and the object is deleted"


def _bulk_load(stage: DeployedStage) -> str:
    """Load one object; the report about it expires with the bucket's others."""
    states = stage.aws("stepfunctions")
    with stage.http() as api, temporary_collection(api) as collection, _form(stage, api, collection) as form:
        _ingested(api, collection, form)
        given = json.dumps({"prefix": form["key"]})
        run = states.start_execution(stateMachineArn=stage.outputs["BulkLoad"], input=given)["executionArn"]

        def ended() -> str | None:
            status: str = states.describe_execution(executionArn=run)["status"]
            return status if status != "RUNNING" else None

        status = wait_for(ended, what="the end of the load", seconds=_WITHIN_S)
    require(status == "SUCCEEDED", f"the load of one object: {status}")
    return "a load of one object succeeded"


@contextmanager
def _form(stage: DeployedStage, api: httpx2.Client, collection: str) -> Iterator[dict[str, Any]]:
    """Yield a form for a file with ``FACT``, and delete the object at the end."""
    asked = {"path": "lighthouse.md", "size_bytes": len(FACT)}
    form: dict[str, Any] = api.post(f"/v1/collections/{collection}/uploads", json=asked).json()
    try:
        yield form
    finally:
        stage.aws("s3").delete_object(Bucket=stage.outputs["UploadsBucket"], Key=form["key"])


def _post(url: str, fields: dict[str, str], text: str) -> int:
    return httpx2.post(url, data=fields, files={"file": text.encode()}).status_code


def _ingested(api: httpx2.Client, collection: str, form: dict[str, Any]) -> int:
    """Upload the file, wait for its document, and return S3's status."""
    accepted = _post(form["url"], form["fields"], FACT)
    require(200 <= accepted < 300, f"the signed form: {accepted}")

    def stored() -> int | None:
        return api.get(f"/v1/collections/{collection}/documents").json()["total"] or None

    wait_for(stored, what="the uploaded document")
    return accepted


def _old_tls(stage: DeployedStage) -> str:
    import ssl

    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    try:
        httpx2.get(f"{stage.api_url}/health", verify=context)
    except httpx2.TransportError as exc:
        return f"TLS 1.1: {type(exc).__name__}"
    require(False, "the REST API accepted TLS 1.1")
    return ""


SERVICE_POINTS: Final = (
    Point("health", "every part reports healthy, through the proxy and from the functions", _health),
    Point("one-round-trip", "the proxy accepts a transaction in pipeline mode", _one_round_trip),
    Point("keys", "without a valid key or token every path is 401 as problem+json", _keys),
    AwsPoint("bearer", "the authorizer passes keys on from Authorization: Bearer", _bearer),
    Point("tenants", "a tenant cannot read another tenant's collection", _tenants),
    Point("cited", "a document is ingested through the queue, cited, and the query logged", _cited),
    Point("upload", "S3 accepts a signed form and rejects altered ones", _upload),
    Point("original", "an original downloads from S3, and is deleted with its document", _original),
    Point("bulk-load", "the state machine loads an object of the bucket of uploads", _bulk_load),
    AwsPoint("tls", "the REST API refuses TLS 1.1", _old_tls),
)
