"""Queries the query function as a caller would: on a schedule, and a new version before it gets traffic.

Every probe checks ``/health?deep=1`` and one streamed query of a tenant of its own, answered by quoting the
documents, so that no model is paid for. The first probe creates the document. boto3 is that of Lambda's
Python runtime, and nothing else is imported, for a small bundle.

https://docs.aws.amazon.com/codedeploy/latest/userguide/reference-appspec-file-structure-hooks.html
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger()

COLLECTION = "probe"
PASSAGE = "The probe of this deployment asks one question every five minutes and expects this sentence."
QUESTION = "How often does the probe of this deployment ask a question?"
_DOCUMENTS = f"/v1/collections/{COLLECTION}/documents"
_POLL_S = 2.0
_READ_TIMEOUT_S = 60
_RESERVE_S = 10.0
"""Time of an invocation that is left to report a failure."""


class ProbeFailedError(Exception):
    """The query function did not answer as expected; the text says what it answered."""


def handler(event: Mapping[str, Any], context: Any) -> dict[str, str]:
    """Probe an alias, or report on a new version to CodeDeploy.

    Args:
        event: ``{"function": ARN}`` of the schedule, or a lifecycle event of CodeDeploy, for which the
            variable ``PROBED_VERSION`` has the ARN of the new version.
        context: Context of Lambda.

    Returns:
        ``{"status": "Succeeded"}``, after a lifecycle event also "Failed".

    Raises:
        ProbeFailedError: The probe of the schedule failed; the alarm ``probe-failed`` counts these.
    """
    until = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - _RESERVE_S
    if "LifecycleEventHookExecutionId" not in event:
        probe(_probed(event["function"]), until)
        return {"status": "Succeeded"}
    status = "Failed"
    try:
        probe(_probed(os.environ["PROBED_VERSION"]), until)
        status = "Succeeded"
    except Exception:  # whatever it is, CodeDeploy must not wait an hour for an answer
        logger.exception("The new version gets no traffic")
    _client("codedeploy").put_lifecycle_event_hook_execution_status(
        deploymentId=event["DeploymentId"],
        lifecycleEventHookExecutionId=event["LifecycleEventHookExecutionId"],
        status=status,
    )
    return {"status": status}


def probe(function: "ProbedFunction", until: float) -> None:
    """Check the health and the answer to one query.

    Args:
        function: The query function.
        until: ``time.monotonic()`` at which an answer is no longer awaited.

    Raises:
        ProbeFailedError: An answer is missing or wrong.
    """
    health = json.loads(function.request("GET", "/health", query={"deep": "1"}, expected=(200,))[1])
    if health["status"] != "ok":
        broken = [f"{part['name']}: {part['detail']}" for part in health["components"] if not part["healthy"]]
        raise ProbeFailedError(f"/health?deep=1 reports {health['status']}: {'; '.join(broken)}")
    if PASSAGE in (answer := _ask(function)):
        return
    _add_document(function)
    while PASSAGE not in (answer := _ask(function)):
        if time.monotonic() + _POLL_S > until:
            raise ProbeFailedError(f"The answer does not quote the document: {answer!r}")
        time.sleep(_POLL_S)


def _ask(function: "ProbedFunction") -> str:
    """Return the answer to the query, empty if there is no collection."""
    body = {"query": QUESTION, "collection": COLLECTION, "provider": "extractive", "stream": True}
    status, events = function.request("POST", "/v1/rag/query", body=body, expected=(200, 404))
    if status != 200:
        return ""
    texts = []
    for event in events.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in event.splitlines())
        if fields.get("event") == "error":
            raise ProbeFailedError(f"The query failed: {fields['data']}")
        if fields.get("event") == "token":
            texts.append(json.loads(fields["data"])["text"])
    return "".join(texts)


def _add_document(function: "ProbedFunction") -> None:
    function.request("POST", "/v1/collections", body={"name": COLLECTION}, expected=(201, 409))
    document = {"source": "probe.txt", "text": PASSAGE}
    function.request("POST", _DOCUMENTS, body={"documents": [document]}, expected=(202,))


class ProbedFunction:
    """The query function, invoked with events of API Gateway.

    Args:
        arn: ARN or name of an alias or a version.
        key_id: Id of an API Gateway key, which the function maps to a tenant.
        client: boto3's client of Lambda.
    """

    def __init__(self, arn: str, key_id: str, client: Any) -> None:
        self._arn = arn
        self._key_id = key_id
        self._lambda = client

    def request(
        self,
        method: str,
        path: str,
        *,
        expected: tuple[int, ...],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Return status and text of the answer.

        Raises:
            ProbeFailedError: The function failed, or the status is not an expected one.
        """
        event = {**_event(method, path, self._key_id), "queryStringParameters": query}
        event["body"] = None if body is None else json.dumps(body)
        invoked = self._lambda.invoke(FunctionName=self._arn, Payload=json.dumps(event))
        payload: bytes = invoked["Payload"].read()
        if "FunctionError" in invoked:
            raise ProbeFailedError(f"{method} {path}: {payload[:1000].decode(errors='replace')}")
        prelude, separator, streamed = payload.partition(b"\0" * 8)
        answer = json.loads(prelude)
        status, text = answer["statusCode"], streamed.decode() if separator else answer["body"]
        if status not in expected:
            raise ProbeFailedError(f"{method} {path}: {status} {text[:1000]}")
        return status, text


def _probed(arn: str) -> ProbedFunction:
    return ProbedFunction(arn, os.environ["PROBE_KEY_ID"], _client("lambda"))


def _event(method: str, path: str, key_id: str) -> dict[str, Any]:
    """Return an event of a REST API."""
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": {"Content-Type": "application/json", "Cache-Control": "no-cache", "Host": "probe"},
        "multiValueHeaders": {},
        "requestContext": {
            "path": path,
            "httpMethod": method,
            "stage": "probe",
            "identity": {"apiKeyId": key_id, "sourceIp": "127.0.0.1"},
        },
        "isBase64Encoded": False,
    }


def _client(service: str) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        service, config=Config(read_timeout=_READ_TIMEOUT_S, retries={"total_max_attempts": 1})
    )
