"""Errors of the HTTP client."""

from collections.abc import Mapping
from typing import Any, Final


class ClientError(Exception):
    """Base of all errors of the client."""


class ServerUnreachableError(ClientError):
    """No response: the connection failed, was lost, or timed out."""


class StreamInterruptedError(ServerUnreachableError):
    """A streamed answer broke off before its last event.

    Generation continues. ``stream`` or ``query`` with the same arguments and ``idempotency_key`` returns the
    same answer from its beginning, at no further cost.
    """

    def __init__(self, message: str, *, query_id: str, last_event_id: str, idempotency_key: str) -> None:
        super().__init__(message)
        self.query_id = query_id
        self.last_event_id = last_event_id
        self.idempotency_key = idempotency_key


class UnexpectedResponseError(ClientError):
    """A response without the documented form, as of another server or a proxy."""


class JobNotFinishedError(ClientError):
    """``jobs.wait`` has waited as long as it may; the job continues."""


class ResponseError(ClientError):
    """The server has reported an error, as an RFC 9457 problem document.

    Attributes:
        status: HTTP status.
        code: Code of the problem, such as "not_found".
        detail: What is wrong and what to do.
        field: Field of the request that is wrong, or None.
        errors: All wrong fields: ``field``, ``message`` and possibly ``limit`` of each.
        request_id: Id of the request in the server's log.
        retry_after_s: Seconds after which a repetition may succeed, or None.
        partial_answer: Text that had been streamed before the error.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.code = str(problem.get("code", "unknown"))
        self.detail = str(problem.get("detail", ""))
        self.errors: list[dict[str, Any]] = list(problem.get("errors") or ())
        self.field: str | None = self.errors[0].get("field") if self.errors else None
        self.request_id = str(problem.get("request_id", ""))
        self.retry_after_s = retry_after_s
        self.partial_answer = str(problem.get("partial_answer", ""))
        wrong = ((error.get("field"), str(error.get("message")).removesuffix(".")) for error in self.errors)
        fields = "".join(f" {field}: {message}." for field, message in wrong if message not in self.detail)
        super().__init__(
            f"{self.detail}{fields} ({status} {self.code}, request {self.request_id or 'unknown'})"
        )


class InvalidRequestError(ResponseError):
    """400, 413, 415, 422: the request is wrong."""


class UnauthenticatedError(ResponseError):
    """401: the key is missing, wrong, revoked or expired."""


class ForbiddenError(ResponseError):
    """403: the key's scope does not include the request."""


class MissingObjectError(ResponseError):
    """404: no such collection, document, job or query of this tenant."""


class StateConflictError(ResponseError):
    """409: the request contradicts the state of its object."""


class RateLimitedError(ResponseError):
    """429: a limit of the tenant or of a provider is reached."""


class ServiceError(ResponseError):
    """5xx: the server or a provider failed."""


_BY_STATUS: Final[Mapping[int, type[ResponseError]]] = {
    400: InvalidRequestError,
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: MissingObjectError,
    409: StateConflictError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    422: InvalidRequestError,
    429: RateLimitedError,
}


def response_error(
    status: int, problem: Mapping[str, Any], retry_after_s: float | None = None
) -> ResponseError:
    """Return the error of a status and its problem document."""
    default = ServiceError if status >= 500 else ResponseError
    return _BY_STATUS.get(status, default)(status, problem, retry_after_s)
