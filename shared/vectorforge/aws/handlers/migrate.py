"""The migrate function: bring the database schema up to date, for a stack or for an operator.

As a custom resource it migrates on Create and Update, and does nothing on Delete. CloudFormation updates a
custom resource only when its properties change: give it one that changes with the migrations. When an update
is rolled back, the older function receives an Update for a newer schema, which it accepts.
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref.html
"""

import asyncio
import concurrent.futures
import http.client
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from vectorforge.aws.handlers.database_work import ACTIONS, DatabaseWork
from vectorforge.aws.observability import FunctionTelemetry
from vectorforge.config import VectorForgeConfig
from vectorforge.db.schema import migrate as migrations
from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, InvalidInputError, VectorForgeError, log_unexpected

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


T = TypeVar("T")

PHYSICAL_ID = "vectorforge-schema"
"""Id of the custom resource; constant, since CloudFormation deletes a resource whose id changes."""


class MigrateFunction:
    """Handler of CloudFormation's requests, and of ``{"action": ...}`` with one of ``ACTIONS``."""

    def __init__(self) -> None:
        self._telemetry: FunctionTelemetry | None = None

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, Any] | None:
        """Handle one event.

        Returns:
            For a direct call the result of the method of ``DatabaseWork``: ``{"applied": [...]}``.

        Raises:
            VectorForgeError: A direct call failed, or the answer to CloudFormation was not accepted.
        """
        deadline = Deadline.after(context.get_remaining_time_in_millis() / 1000)
        if "ResponseURL" not in event:
            return self._run(event, context, deadline)
        request = StackRequest.of(event)
        self._answer(request, context, deadline).send(request, deadline)
        return None

    def _answer(self, request: StackRequest, context: Any, deadline: Deadline) -> StackAnswer:
        """Return an answer in every case; without one the stack waits for an hour."""
        physical_id = request.physical_id or PHYSICAL_ID
        try:
            if request.kind == "Delete":
                return StackAnswer(physical_id, {})
            if request.kind not in ("Create", "Update"):
                raise InvalidInputError("RequestType must be Create, Update or Delete.", field="RequestType")
            applied = self._run({"action": "migrate"}, context, deadline, of_stack=True)["applied"]
        except VectorForgeError as exc:
            return StackAnswer(physical_id, {}, failure=exc.message)
        except Exception as exc:  # noqa: BLE001 - answered without its text, which may contain secrets
            log_unexpected(logger, "Migration failed", exc)
            return StackAnswer(physical_id, {}, failure=f"{type(exc).__name__}; see the function's log.")
        version = migrations.read_migrations()[-1].version
        return StackAnswer(physical_id, {"Version": str(version), "Applied": str(len(applied))})

    def _run(
        self, event: Mapping[str, Any], context: Any, deadline: Deadline, *, of_stack: bool = False
    ) -> dict[str, Any]:
        config = VectorForgeConfig.from_environment()
        if self._telemetry is None:
            self._telemetry = FunctionTelemetry("migrate", config)
        with self._telemetry.invocation(context):
            action = event.get("action")
            if action not in ACTIONS:
                raise InvalidInputError(f"action must be one of: {', '.join(ACTIONS)}.", field="action")
            remaining_s = deadline.remaining_s()
            reserve_s = min(remaining_s / 4, 20.0)
            work = DatabaseWork(config, seconds=remaining_s - reserve_s, of_stack=of_stack)
            return _within(remaining_s - reserve_s / 2, getattr(work, action)(event))


def _within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of ``work``, or raise if it cannot be canceled in time.

    The driver may wait for a silent network for a while after it was canceled; hence a thread.
    """
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            result.set_result(asyncio.run(work))
        except BaseException as exc:  # noqa: BLE001 - raised where the result is awaited
            result.set_exception(exc)

    threading.Thread(target=run, name="migrate", daemon=True).start()
    try:
        return result.result(timeout=seconds)
    except concurrent.futures.TimeoutError:
        raise DeadlineExceededError("The database does not respond; the migration was cancelled.") from None
