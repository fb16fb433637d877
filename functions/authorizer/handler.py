"""Hands the caller's key to API Gateway, which alone knows whether it is one.

API Gateway reads keys from ``x-api-key``, or takes them from an authorizer; clients of OpenAI and of MCP send
``Authorization: Bearer <key>`` and nothing else. So this function passes on what it finds, and decides
nothing: a key that is in no usage plan is refused by API Gateway. It imports nothing, so that a new process
begins at once.

https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-api-key-source.html
"""

from collections.abc import Mapping
from typing import Any


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """The answer of a Lambda authorizer.

    Args:
        event: Of a REQUEST authorizer, payload 1.0.
        context: Of Lambda.

    Returns:
        ``usageIdentifierKey`` is the key that was sent. ``x-api-key`` comes first: a client that sends both
        has put something else into ``Authorization``, such as a key of the application's own. Without any
        there is nothing to check, and the policy is "Deny".

        https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-lambda-authorizer-output.html
    """
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    key = headers.get("x-api-key", "").strip() or _bearer(headers.get("authorization", ""))
    statement = {
        "Action": "execute-api:Invoke",
        "Effect": "Allow" if key else "Deny",
        "Resource": event["methodArn"],
    }
    answer = {"principalId": "caller", "policyDocument": {"Version": "2012-10-17", "Statement": [statement]}}
    return {**answer, "usageIdentifierKey": key} if key else answer


def _bearer(authorization: str) -> str:
    scheme, _, key = authorization.strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
