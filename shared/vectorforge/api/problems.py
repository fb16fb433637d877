"""Errors as RFC 9457 ``application/problem+json``; one table maps error classes to statuses.

Paths of OpenAI's API have errors of OpenAI's shape, the only one that its clients read.

Only messages of our own errors are sent. Any other exception becomes a 500 without detail, because its
message may hold keys, URLs or rows.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Match
from starlette.types import Scope

from vectorforge import errors
from vectorforge.api.error_schemas import (
    PROBLEM_MEDIA_TYPE,
    FieldProblem,
    Problem,
    as_written,
    aws_error,
    aws_exception,
    field_problem,
    openai_error,
    openai_status,
    printable,
)
from vectorforge.api.request_state import RequestState, missing_prefix, route_path

logger = logging.getLogger(__name__)

STATUS_OF: Mapping[type[errors.VectorForgeError], int] = {
    errors.AuthenticationError: 401,
    errors.InsufficientScopeError: 403,
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.InvalidInputError: 422,
    errors.EmbeddingInputError: 422,
    errors.ExtractionError: 422,
    errors.LLMContextOverflowError: 422,
    errors.EmbeddingRateLimitError: 429,
    errors.LimitExceededError: 429,
    errors.LLMRateLimitError: 429,
    errors.EmbeddingError: 502,
    errors.LLMError: 502,
    errors.AnswerStreamLostError: 503,
    errors.AnswerStreamTooLongError: 503,
    errors.AnswerUnavailableError: 503,
    errors.ConfigurationError: 503,
    errors.GatewayKeysUnavailableError: 503,
    errors.IdentityProviderUnavailableError: 503,
    errors.LLMCircuitOpenError: 503,
    errors.ObjectStoreError: 503,
    errors.RetrievalError: 503,
    errors.DatabaseUnavailableError: 503,
    errors.DeadlineExceededError: 504,
    errors.EmbeddingTimeoutError: 504,
    errors.LLMTimeoutError: 504,
    errors.NotDeployedError: 501,
    errors.VectorForgeError: 500,
}
"""The most specific class of an error decides."""

_HTTP_CODES: Mapping[int, str] = {
    400: "malformed_request",
    403: "forbidden",
    404: "route_not_found",
    405: "method_not_allowed",
    408: "body_too_slow",
    413: "body_too_large",
    415: "unsupported_media_type",
    416: "range_not_satisfiable",
    421: "wrong_host",
}
_INTERNAL_DETAIL = "Something went wrong on the server; its log has the details under this request id."
_DEFAULT_RETRY_AFTER_S = 2.0
_MAX_FIELD_PROBLEMS = 20
_ROUTE_NOT_FOUND = "This route is not supported. GET /openapi.json lists every route."


def status_of(error: errors.VectorForgeError) -> int:
    """Return the HTTP status of an error, by its most specific class in ``STATUS_OF``."""
    return next(STATUS_OF[cls] for cls in type(error).__mro__ if cls in STATUS_OF)


def problem_of(error: Exception, *, request_id: str, prefix: str = "") -> Problem:
    """Describe an exception to a caller; only messages of our own errors are used.

    ``prefix`` precedes the detail of a 5xx; ``/v1/rag/query`` has one (B-040).
    """
    if not isinstance(error, errors.VectorForgeError):
        error = errors.VectorForgeError(_INTERNAL_DETAIL)
    status = status_of(error)
    detail = _INTERNAL_DETAIL if status == 500 else error.message
    title = (type(error).__doc__ or "").strip().splitlines()[0]
    detail = f"{prefix}{detail}" if status >= 500 else detail
    return _problem(error.code, title, status, detail, request_id, _own_field_problem(error))


def _problem(
    code: str, title: str, status: int, detail: str, request_id: str, fields: list[FieldProblem] | None = None
) -> Problem:
    return Problem(
        type=f"urn:vectorforge:problem:{code}",
        title=title,
        status=status,
        detail=detail,
        code=code,
        request_id=request_id,
        errors=fields,
    )


def retry_after_s(error: Exception) -> int | None:
    """Return whole seconds for ``Retry-After``, or None if a retry is useless."""
    if not isinstance(error, errors.VectorForgeError):
        return None
    later = (errors.FeedbackTooEarlyError, errors.IdempotentAnswerPendingError)
    may_pass = status_of(error) in (429, 503) or isinstance(error, later)
    if not may_pass or isinstance(error, errors.ConfigurationError):
        return None
    return max(1, math.ceil(error.retry_after_s or _DEFAULT_RETRY_AFTER_S))


def problem_response(
    problem: Problem, state: RequestState, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the problem as a response, in the shape that clients of the route read."""
    if state.error_shape == "openai":
        return JSONResponse(openai_error(problem), openai_status(problem.status), headers)
    if state.error_shape == "aws":
        typed = {**(headers or {}), "x-amzn-ErrorType": aws_exception(problem)}
        return JSONResponse(aws_error(problem), openai_status(problem.status), typed)
    content = problem.model_dump(mode="json", exclude_none=True)
    if state.error_shape == "mcp":
        code = -32603 if problem.status >= 500 else -32600
        error = {"code": code, "message": problem.detail, "data": content}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, problem.status, headers)
    return JSONResponse(content, problem.status, headers, media_type=PROBLEM_MEDIA_TYPE)


def error_response(state: RequestState, error: Exception) -> JSONResponse:
    """Return the response to a request that raised ``error``."""
    problem = problem_of(error, request_id=state.request_id, prefix=state.problem_prefix)
    if problem.status == 500:
        errors.log_unexpected(logger, f"Request {problem.request_id} failed", error)
    headers: dict[str, str] = {}
    if (seconds := retry_after_s(error)) is not None:
        headers["Retry-After"] = str(seconds)
    if (challenge := _challenge(error)) is not None:
        headers["WWW-Authenticate"] = challenge
    return problem_response(problem, state, headers)


def _challenge(error: Exception) -> str | None:
    """Return ``WWW-Authenticate`` (RFC 6750, section 3); without a credential it names no error."""
    if isinstance(error, errors.AuthenticationError):
        return 'Bearer error="invalid_token"' if error.presented else "Bearer"
    if isinstance(error, errors.InsufficientScopeError):
        return f'Bearer error="insufficient_scope", scope="{error.required}"'
    return None


def http_problem(
    status: int,
    detail: str,
    *,
    state: RequestState,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return a problem of the protocol itself, such as an unknown route or a body that is too large."""
    code = code or _HTTP_CODES.get(status, "http_error")
    title = code.replace("_", " ").capitalize()
    return problem_response(_problem(code, title, status, detail, state.request_id), state, headers)


def route_not_found(scope: Scope) -> JSONResponse:
    """Return the 404 of a path that no route serves; name the URL of a client that has the server's root."""
    detail = _ROUTE_NOT_FOUND
    if prefix := missing_prefix(route_path(scope)):
        kind = "base" if prefix == "/v1" else "endpoint"
        root = str(HTTPConnection(scope).base_url).rstrip("/")
        detail = printable(f"This route is not supported. Use the {kind} URL {root}{prefix}, not {root}.")
    return http_problem(404, detail, state=RequestState.of(scope))


def install_problem_handlers(app: FastAPI) -> None:
    """Answer every error of the routes with a problem document."""

    async def own(request: Request, exc: Exception) -> JSONResponse:
        return error_response(RequestState.of(request.scope), exc)

    async def http(request: Request, exc: Exception) -> JSONResponse:
        assert isinstance(exc, HTTPException)  # noqa: S101 - registered for this class only, below
        if exc.status_code == 404:  # raised by the router only; our own is ``NotFoundError``
            return route_not_found(request.scope)
        state = RequestState.of(request.scope)
        detail, headers = exc.detail, exc.headers
        if "Allow" in (headers or {}):  # with the methods of the path's first route only
            routes = [route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE]
            allowed = ", ".join(sorted({method for route in routes for method in route.methods}))
            detail = f"This route does not support {request.method}; supported: {allowed}."
            headers = {"Allow": allowed}
        return http_problem(exc.status_code, detail, state=state, headers=headers)

    async def validation(request: Request, exc: Exception) -> JSONResponse:
        assert isinstance(exc, RequestValidationError)  # noqa: S101 - registered for this class only, below
        state, found = RequestState.of(request.scope), exc.errors()
        if found[0]["type"] == "json_invalid":
            detail = f"The body is not valid JSON: error at character {found[0]['loc'][-1]}."
            return http_problem(400, detail, state=state)
        if isinstance(exc.body, bytes):  # FastAPI leaves a body unread that is not declared as JSON
            detail = "Send the body as JSON, with Content-Type: application/json."
            return http_problem(415, detail, state=state)
        found = [{**error, "loc": as_written(error, exc.body)} for error in found]
        return problem_response(_validation_problem(found, _fields_of(request), state.request_id), state)

    app.add_exception_handler(errors.VectorForgeError, own)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, validation)


def _own_field_problem(error: errors.VectorForgeError) -> list[FieldProblem] | None:
    if isinstance(error, errors.InvalidInputError | errors.AnsweringModelNotFoundError) and error.field:
        return [FieldProblem(field=printable(error.field), message=error.message)]
    if isinstance(error, errors.LLMContextOverflowError):
        return [FieldProblem(field="messages", message=error.message, limit=error.limit_tokens)]
    if isinstance(error, errors.LimitExceededError):
        return [FieldProblem(field=error.limit, message=error.message, limit=error.value)]
    return None


def _fields_of(request: Request) -> Collection[str]:
    """Return the names of the fields of the route's body; none if it is no single model."""
    body = getattr(request.scope.get("route"), "body_field", None)
    return getattr(body and body.field_info.annotation, "model_fields", ())


def _validation_problem(
    found: Sequence[Mapping[str, Any]], known: Collection[str], request_id: str
) -> Problem:
    fields = [field_problem(error, known) for error in found[:_MAX_FIELD_PROBLEMS]]
    named = "; ".join(f"{f.field}: {f.message}" for f in fields[:3])
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    title = "A value in the request is invalid."
    return _problem("invalid_input", title, 422, f"{named}{more}", request_id, fields)
