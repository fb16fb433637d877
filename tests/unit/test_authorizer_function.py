"""The authorizer passes a key to API Gateway, and decides nothing."""

from typing import Any

import pytest

from functions.authorizer.handler import handler

METHOD = "arn:aws:execute-api:eu-central-1:123456789012:a1b2c3d4e5/prod/POST/v1/chat/completions"
KEY, OTHER = "ExampleKeyOfApiGateway0123456789", "AnotherKeyOfApiGateway0123456789"


def authorize(headers: dict[str, str] | None) -> dict[str, Any]:
    """See https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-lambda-authorizer-input.html"""
    return handler({"type": "REQUEST", "methodArn": METHOD, "headers": headers}, None)


def effect(answer: dict[str, Any]) -> str:
    [statement] = answer["policyDocument"]["Statement"]
    assert (statement["Action"], statement["Resource"]) == ("execute-api:Invoke", METHOD)
    assert answer["policyDocument"]["Version"] == "2012-10-17"
    return str(statement["Effect"])


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer  {KEY} "},
        {"X-Api-Key": KEY},
        {"x-api-key": f" {KEY} "},
        {"Authorization": f"Bearer {OTHER}", "x-api-key": KEY},
        {"Authorization": f"Bearer {KEY}", "x-api-key": " "},
        {"Authorization": "Basic YTpi", "x-api-key": KEY},
    ],
)
def test_authorizer_with_key_allows_and_returns_key_unchanged(headers: dict[str, str]) -> None:
    answer = authorize(headers)
    assert (effect(answer), answer["usageIdentifierKey"]) == ("Allow", KEY)


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": KEY},
        {"Authorization": "Basic YTpi"},
        {"x-api-key": ""},
    ],
)
def test_authorizer_without_key_denies_and_returns_no_key(headers: dict[str, str] | None) -> None:
    answer = authorize(headers)
    assert effect(answer) == "Deny"
    assert "usageIdentifierKey" not in answer


def test_authorizer_response_holds_key_in_usage_identifier_only() -> None:
    answer = authorize({"Authorization": f"Bearer {KEY}"})
    assert KEY not in str({name: value for name, value in answer.items() if name != "usageIdentifierKey"})
