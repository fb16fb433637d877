"""Points of objects in S3: signed forms, links to originals, bulk loads."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import httpx2

from infra.verification.points import Point, require, wait_for
from infra.verification.stage import DeployedStage
from infra.verification.temporary_collection import FACT, ingest, temporary_collection

_PATH: Final = "lighthouse.md"
_DELETED_WITHIN_S = 360
"""The ingest function deletes objects every five minutes."""
_LOADED_WITHIN_S = 300


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

    def deleted() -> bool | None:
        return True if not stage.aws("s3").list_objects_v2(Bucket=bucket, Prefix=key)["KeyCount"] else None

    wait_for(deleted, what="the deletion of the object", seconds=_DELETED_WITHIN_S)
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

        status = wait_for(ended, what="the end of the load", seconds=_LOADED_WITHIN_S)
    require(status == "SUCCEEDED", f"the load of one object: {status}")
    return "a load of one object succeeded"


@contextmanager
def _form(stage: DeployedStage, api: httpx2.Client, collection: str) -> Iterator[dict[str, Any]]:
    """Yield a form for a file with ``FACT``, and delete the object at the end."""
    asked = {"path": _PATH, "size_bytes": len(FACT)}
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


OBJECT_POINTS: Final = (
    Point("upload", "S3 accepts a signed form and rejects altered ones", _upload),
    Point("original", "an original downloads from S3, and is deleted with its document", _original),
    Point("bulk-load", "the state machine loads an object of the bucket of uploads", _bulk_load),
)
