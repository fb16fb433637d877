"""A REST API that admits callers by tokens of a user pool of Cognito, without keys."""

import dataclasses
import json
from pathlib import Path

import pytest

from infra.costs.bill import idle_bill
from infra.setting_types import NetworkSettings, SettingsError, UserPool
from infra.settings import DEV, PROD
from infra.stage_settings import StageSettings
from tests.infra.front_door_templates import methods
from tests.infra.stack_template import StackTemplate, text
from tests.infra.synthesized import synthesize
from vectorforge.config import VectorForgeConfig

ARN = "arn:aws:cognito-idp:eu-central-1:123456789012:userpool/eu-central-1_AbCdEf123"
POOL = UserPool(ARN, "1h57kf5cpq17m0eml12EXAMPLE")
TOKENS = dataclasses.replace(DEV, stage="tokens", authorizer=None, user_pool=POOL)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> StackTemplate:
    return synthesize(TOKENS, tmp_path_factory.mktemp("tokens"))["App"]


def test_every_private_path_requires_a_token_and_no_key(app: StackTemplate) -> None:
    [authorizer] = app.of_kind("AWS::ApiGateway::Authorizer").values()
    assert (authorizer["Type"], authorizer["ProviderARNs"]) == ("COGNITO_USER_POOLS", [ARN])
    assert authorizer["IdentitySource"] == "method.request.header.Authorization"
    found = methods(app)
    private = found.pop("/{proxy+}")["ANY"]
    assert private["AuthorizationType"] == "COGNITO_USER_POOLS"
    assert text(private["AuthorizerId"]) == "RestApiTokens"
    assert not private["ApiKeyRequired"]
    for verbs in found.values():
        assert {method["AuthorizationType"] for method in verbs.values()} == {"NONE"}
    kinds = {resource["Type"] for resource in app.resources.values()}
    assert not kinds & {"AWS::ApiGateway::ApiKey", "AWS::ApiGateway::UsagePlan"}
    names = {function["FunctionName"] for function in app.of_kind("AWS::Lambda::Function").values()}
    assert "vectorforge-tokens-authorizer" not in names


def test_function_takes_tenant_from_verified_token_only(
    app: StackTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = app.of_kind("AWS::Lambda::Function")["QueryFunction"]["Environment"]["Variables"]
    issuer = "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_AbCdEf123"
    jwt = {key: value for key, value in variables.items() if "_JWT_" in key}
    assert jwt == {
        "VECTORFORGE_JWT_ISSUER": issuer,
        "VECTORFORGE_JWT_AUDIENCE": POOL.client_id,
        "VECTORFORGE_JWT_JWKS_URL": f"{issuer}/.well-known/jwks.json",
        "VECTORFORGE_JWT_TENANT_CLAIM": "custom:tenant",
        "VECTORFORGE_JWT_SCOPE_CLAIM": "cognito:groups",
    }
    assert not {name for name in variables if "GATEWAY_KEY" in name}
    for name, value in jwt.items():
        monkeypatch.setenv(name, value)
    read = VectorForgeConfig.from_environment().identity
    assert (read.jwt_issuer, read.jwt_tenant_claim) == (issuer, "custom:tenant")


def test_rejected_token_is_a_problem_document(app: StackTemplate) -> None:
    responses = {one["ResponseType"]: one for one in app.of_kind("AWS::ApiGateway::GatewayResponse").values()}
    for kind in ("UNAUTHORIZED", "EXPIRED_TOKEN"):
        assert responses[kind]["StatusCode"] == "401"
        body = json.loads(responses[kind]["ResponseTemplates"]["application/json"])
        assert (body["status"], body["code"]) == (401, "unauthenticated")
        assert "token" in body["detail"]


def test_access_log_names_the_user(app: StackTemplate) -> None:
    [stage] = app.of_kind("AWS::ApiGateway::Stage").values()
    logged = json.loads(stage["AccessLogSetting"]["Format"])
    assert logged["subject"] == "$context.authorizer.claims.sub"
    assert "apiKeyId" not in logged


def test_outputs_ask_for_a_token(app: StackTemplate) -> None:
    assert "authorization: Bearer $TOKEN" in text(app.outputs["ApiExample"]["Value"])
    assert not [name for name in app.outputs if name.startswith("KeyCommand")]


def test_stage_of_tokens_pays_for_no_secret_of_keys() -> None:
    [tokens] = [line.dollars for line in idle_bill(TOKENS) if line.what == "secrets"]
    [keys] = [line.dollars for line in idle_bill(DEV) if line.what == "secrets"]
    assert keys - tokens == pytest.approx(0.40)


@pytest.mark.slow
def test_prod_with_pool_has_no_finding(tmp_path: Path) -> None:
    stage = dataclasses.replace(PROD, stage="pooled", authorizer=None, user_pool=POOL, web_acl=False)
    assert synthesize(stage, tmp_path)["App"].of_kind("AWS::ApiGateway::Authorizer")


def changed(**changes: object) -> StageSettings:
    return dataclasses.replace(TOKENS, **changes)  # type: ignore[arg-type] # of a test's table


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"authorizer": DEV.migrate}, "authorizer must be None"),
        (
            {"front_door": "function_url", "query": dataclasses.replace(DEV.query, max_concurrency=9)},
            "user_pool needs the REST API",
        ),
        ({"network": NetworkSettings(egress="none")}, "user_pool needs egress"),
        ({"environment": {"VECTORFORGE_JWT_ISSUER": "https://other.example"}}, "use user_pool"),
    ],
)
def test_contradicting_settings_are_rejected(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        changed(**changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"arn": "eu-central-1_AbCdEf123"}, "ARN of a user pool"), ({"client_id": "a b"}, "id of a client")],
)
def test_malformed_pool_is_rejected(change: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        changed(user_pool=dataclasses.replace(POOL, **change))
