"""What API Gateway itself answers, in the words of the HTTP API: problem documents (RFC 9457)."""

import json
from dataclasses import dataclass

from aws_cdk import aws_apigateway as apigateway

_ResponseType = apigateway.ResponseType
_KEY_WANTED = "An API key is required: X-Api-Key: <key>."


@dataclass(frozen=True, slots=True)
class _Problem:
    """An answer of API Gateway's own; the fields are those of ``vectorforge.api.schemas``."""

    construct_id: str
    response_type: apigateway.ResponseType
    status: int
    code: str
    title: str
    detail: str
    retry_after_s: int | None = None


_PROBLEMS = (
    _Problem(
        "NoKey",
        _ResponseType.INVALID_API_KEY,
        401,  # API Gateway's own choice is 403, after which no client asks for a key
        "unauthenticated",
        "There is no valid credential.",
        _KEY_WANTED,
    ),
    _Problem(
        "NothingToCheck",
        _ResponseType.ACCESS_DENIED,  # functions/authorizer found no key in the request
        401,
        "unauthenticated",
        "There is no valid credential.",
        _KEY_WANTED,
    ),
    _Problem(
        "TooMany",
        _ResponseType.THROTTLED,
        429,
        "too_many_requests",
        "There were too many requests.",
        "The tenant's requests per second are used up.",
        retry_after_s=1,
    ),
    _Problem(
        "NoRoute",
        _ResponseType.MISSING_AUTHENTICATION_TOKEN,  # API Gateway's name for a method that is not there
        405,
        "method_not_allowed",
        "Method Not Allowed",
        "There is no such method here.",
    ),
    _Problem(
        "TooLarge",
        _ResponseType.REQUEST_TOO_LARGE,
        413,
        "body_too_large",
        "Content Too Large",
        "API Gateway takes 10 MB, and Lambda 6 MB of them: ask for an upload instead.",
    ),
    _Problem(
        "Filtered",
        _ResponseType.WAF_FILTERED,
        403,
        "forbidden",
        "Forbidden",
        "The firewall refused the request.",
    ),
    _Problem(
        "Refused",
        _ResponseType.DEFAULT_4_XX,
        400,
        "malformed_request",
        "Bad Request",
        "API Gateway refused the request.",
    ),
    _Problem(
        "Failed",
        _ResponseType.DEFAULT_5_XX,
        502,
        "function_failed",
        "The function did not answer.",
        "The function's log has the details under this request id.",
    ),
    _Problem(
        "TimedOut",
        _ResponseType.INTEGRATION_TIMEOUT,
        504,
        "deadline_exceeded",
        "Gateway Timeout",
        "The function did not answer in time.",
    ),
)


_FOR_PAGES = {
    "Access-Control-Allow-Origin": "'*'",
    "Access-Control-Expose-Headers": "'Retry-After,X-Amzn-RequestId'",
}
"""Of every page: these answers hold no data, and their headers cannot depend on the origin."""


def add_gateway_responses(api: apigateway.RestApi, *, for_pages: bool) -> None:
    """Give the API's own answers the form that clients know from the application's.

    Args:
        api: The REST API.
        for_pages: Let pages of other origins read them (CORS).
    """
    for problem in _PROBLEMS:
        headers = {"Content-Type": "'application/problem+json'", "Cache-Control": "'no-store'"}
        if for_pages:
            headers |= _FOR_PAGES
        if problem.retry_after_s is not None:
            headers["Retry-After"] = f"'{problem.retry_after_s}'"
        body = {
            "type": f"urn:vectorforge:problem:{problem.code}",
            "title": problem.title,
            "status": problem.status,
            "detail": problem.detail,
            "code": problem.code,
            "request_id": "$context.requestId",
        }
        api.add_gateway_response(
            problem.construct_id,
            type=problem.response_type,
            status_code=str(problem.status),
            response_headers=headers,
            templates={"application/json": json.dumps(body)},
        )
