"""Passes the caller's key to API Gateway, which checks it.

API Gateway reads keys from ``x-api-key`` or from an authorizer; clients of OpenAI and of MCP only send
``Authorization: Bearer <key>``. This function passes the key on without a decision: API Gateway rejects a key
that is in no usage plan. It imports no packages, for a short cold start.

https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-api-key-source.html
"""

from collections.abc import Mapping
from typing import Any


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Return the answer of a Lambda authorizer.

    Args:
        event: Event of a REQUEST authorizer, payload 1.0.
        context: Context of Lambda.

    Returns:
        ``usageIdentifierKey`` is the key that was sent. ``x-api-key`` has precedence: a client that sends
        both may use ``Authorization`` for a key of the application. Without a key the policy is "Deny".

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
