"""Responses of API Gateway itself, as problem documents (RFC 9457) like the application's."""

import json

from aws_cdk import aws_apigateway as apigateway

_ResponseType = apigateway.ResponseType
_KEY_WANTED = "An API key is required: X-Api-Key: <key>."


_NO_CREDENTIAL = (401, "unauthenticated", "There is no valid credential.", _KEY_WANTED)
_PROBLEMS = (
    # construct, type, (status, code, title, detail): the fields of ``vectorforge.api.schemas``
    ("NoKey", _ResponseType.INVALID_API_KEY, _NO_CREDENTIAL),  # API Gateway's default is 403
    ("NothingToCheck", _ResponseType.ACCESS_DENIED, _NO_CREDENTIAL),  # functions/authorizer found no key
    ("TooMany", _ResponseType.THROTTLED, (
        429, "too_many_requests", "There were too many requests.",
        "The limit of requests per second, the tenant's or the API's, is reached: wait a second.")),
    ("NoRoute", _ResponseType.MISSING_AUTHENTICATION_TOKEN, (  # API Gateway's name for an unknown method
        405, "method_not_allowed", "Method Not Allowed", "There is no such method here.")),
    ("TooLarge", _ResponseType.REQUEST_TOO_LARGE, (
        413, "body_too_large", "Content Too Large",
        "API Gateway takes 10 MB, and Lambda 6 MB of them: ask for an upload instead.")),
    ("Filtered", _ResponseType.WAF_FILTERED, (
        403, "forbidden", "Forbidden", "The firewall refused the request.")),
    ("Refused", _ResponseType.DEFAULT_4_XX, (
        400, "malformed_request", "Bad Request", "API Gateway refused the request.")),
    ("Failed", _ResponseType.DEFAULT_5_XX, (
        502, "function_failed", "The function did not answer.",
        "The function's log has the details under this request id.")),
    ("TimedOut", _ResponseType.INTEGRATION_TIMEOUT, (
        504, "deadline_exceeded", "Gateway Timeout", "The function did not answer in time.")),
)  # fmt: skip
_SIGN_IN = "A valid ID token of the user pool is required: Authorization: Bearer <token>."
_OF_TOKENS = tuple(
    (construct_id, kind, (401, "unauthenticated", "There is no valid credential.", _SIGN_IN))
    for construct_id, kind in (
        ("NoToken", _ResponseType.UNAUTHORIZED),
        ("ExpiredToken", _ResponseType.EXPIRED_TOKEN),  # API Gateway's default is 403
    )
)
_RETRY_AFTER_S = {"TooMany": 1}

_FOR_PAGES = {
    "Access-Control-Allow-Origin": "'*'",
    "Access-Control-Expose-Headers": "'Retry-After,X-Amzn-RequestId'",
}
"""CORS headers for every origin: the responses hold no data, and cannot depend on the origin."""


def add_gateway_responses(api: apigateway.RestApi, *, for_pages: bool, tokens: bool) -> None:
    """Replace the API's own responses by problem documents.

    Args:
        api: The REST API.
        for_pages: Make them readable for web pages of other origins (CORS).
        tokens: API Gateway verifies tokens.
    """
    problems = (*_PROBLEMS, *(_OF_TOKENS if tokens else ()))
    for construct_id, response_type, (status, code, title, detail) in problems:
        headers = {"Content-Type": "'application/problem+json'", "Cache-Control": "'no-store'"}
        if for_pages:
            headers |= _FOR_PAGES
        if construct_id in _RETRY_AFTER_S:
            headers["Retry-After"] = f"'{_RETRY_AFTER_S[construct_id]}'"
        body = {
            "type": f"urn:vectorforge:problem:{code}",
            "title": title,
            "status": status,
            "detail": detail,
            "code": code,
            "request_id": "$context.requestId",
        }
        api.add_gateway_response(
            construct_id,
            type=response_type,
            status_code=str(status),
            response_headers=headers,
            templates={"application/json": json.dumps(body)},
        )
