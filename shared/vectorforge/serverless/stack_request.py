"""Requests of CloudFormation to a custom resource, and their answers.

https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref.html
"""

import http.client
import json
import logging
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vectorforge.deadline import Deadline
from vectorforge.errors import InvalidInputError, VectorForgeError

logger = logging.getLogger(__name__)

_MAX_BYTES = 4096
"""Longest answer."""
_ATTEMPTS = 3
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class StackRequest:
    """A request from a stack that is created, updated or deleted."""

    kind: str
    """Create | Update | Delete"""
    response_url: str
    stack_id: str
    request_id: str
    logical_id: str
    physical_id: str | None
    """The id in the answer to Create; None in Create."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """Parse an event.

        Raises:
            InvalidInputError: A field that the answer needs is missing.
        """
        try:
            request = cls(
                kind=event["RequestType"],
                response_url=event["ResponseURL"],
                stack_id=event["StackId"],
                request_id=event["RequestId"],
                logical_id=event["LogicalResourceId"],
                physical_id=event.get("PhysicalResourceId"),
            )
        except KeyError as exc:
            raise InvalidInputError(
                f"The custom resource request has no {exc.args[0]}.", field=exc.args[0]
            ) from None
        if not request.response_url.startswith(("https://", "http://")):
            raise InvalidInputError("ResponseURL must be an HTTP or HTTPS URL.", field="ResponseURL")
        return request


@dataclass(frozen=True, slots=True)
class StackAnswer:
    """The answer to a request."""

    physical_id: str
    data: Mapping[str, str]
    """Attributes that the template can read with ``Fn::GetAtt``."""
    failure: str | None = None
    """Reason of the failure, visible to everyone with access to the stack; None if it succeeded."""

    def send(self, request: StackRequest, deadline: Deadline) -> None:
        """Send the answer, with at most three attempts.

        Raises:
            VectorForgeError: It was not accepted; the stack waits for another answer, at most an hour.
        """
        body = {
            "Status": "SUCCESS" if self.failure is None else "FAILED",
            "Reason": "",
            "PhysicalResourceId": self.physical_id,
            "StackId": request.stack_id,
            "RequestId": request.request_id,
            "LogicalResourceId": request.logical_id,
            "NoEcho": False,
            "Data": dict(self.data),
        }
        body["Reason"] = _start(self.failure or "", _MAX_BYTES - len(json.dumps(body)))
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                _put(request.response_url, json.dumps(body).encode(), deadline)
            except (http.client.HTTPException, OSError, ValueError) as exc:
                # The exception's text may contain the URL, and with it the signature.
                logger.warning("CloudFormation did not accept the answer: %s", type(exc).__name__)
            else:
                return
            if attempt < _ATTEMPTS:
                time.sleep(attempt * 0.5)
        raise VectorForgeError("CloudFormation did not accept the answer.")


def _put(url: str, body: bytes, deadline: Deadline) -> None:
    # The URL is signed for a request without a content type.
    request = urllib.request.Request(url, body, {"Content-Type": ""}, method="PUT")  # noqa: S310 - was checked
    timeout_s = max(min(_TIMEOUT_S, deadline.remaining_s()), 0.5)
    with urllib.request.urlopen(request, timeout=timeout_s):  # noqa: S310 - the scheme was checked
        pass


def _start(text: str, size: int) -> str:
    """Return as many leading characters as fit into ``size`` bytes of JSON."""
    for number, character in enumerate(text):
        size -= len(json.dumps(character)) - 2  # without its quotes
        if size < 0:
            return text[:number]
    return text
