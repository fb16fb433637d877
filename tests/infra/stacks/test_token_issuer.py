"""A REST API that admits callers by tokens of any OpenID Connect issuer, verified by the query function."""

import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.setting_types import NetworkSettings, SettingsError, TokenIssuer, UserPool
from infra.settings import DEV
from infra.stage_settings import StageSettings
from infra.verification.stage import TOKENS
from tests.infra.front_door_templates import methods
from tests.infra.stack_template import StackTemplate, text
from tests.infra.synthesized import synthesize
from tests.infra.verified_stage import check, reach
from tests.support.aws.live_query_function import QuerySurroundings, query_surroundings
from tests.support.aws.query_events import query_function
from tests.support.aws.rest_api import RestApi
from tests.support.aws.scripted_aws import ScriptedAws
from tests.support.http.identity_provider import AUDIENCE, ISSUER, IdentityProvider, identity_provider
from vectorforge.local.postgres import EmbeddedPostgres

IDP = TokenIssuer(
    ISSUER, AUDIENCE, "https://idp.example/keys", tenant_claim="https://acme.example/org", scope_prefix="vf:"
)
STAGE = dataclasses.replace(DEV, stage="oidc", authorizer=None, token_issuer=IDP, web_acl=True)
POOL = UserPool("arn:aws:cognito-idp:eu-central-1:123456789012:userpool/eu-central-1_AbCdEf123", "client")
COLLECTIONS = "/prod/v1/collections"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> StackTemplate:
    return synthesize(STAGE, tmp_path_factory.mktemp("oidc"))["App"]


def test_requests_pass_to_function_behind_throttling_and_firewall(app: StackTemplate) -> None:
    private = methods(app)["/{proxy+}"]["ANY"]
    assert (private["AuthorizationType"], private["ApiKeyRequired"]) == ("NONE", False)
    kinds = {resource["Type"] for resource in app.resources.values()}
    assert not kinds & {
        "AWS::ApiGateway::ApiKey",
        "AWS::ApiGateway::Authorizer",
        "AWS::ApiGateway::UsagePlan",
    }
    assert "AWS::WAFv2::WebACLAssociation" in kinds
    [stage] = app.of_kind("AWS::ApiGateway::Stage").values()
    [default] = [one for one in stage["MethodSettings"] if one["ResourcePath"] == "/*"]
    assert default["ThrottlingRateLimit"] == STAGE.requests_per_second * len(STAGE.tenants)
    logged = json.loads(stage["AccessLogSetting"]["Format"])
    assert not logged.keys() & {"apiKeyId", "subject"}
    assert "authorization: Bearer $TOKEN" in text(app.outputs["ApiExample"]["Value"])
    variables = app.of_kind("AWS::Lambda::Function")["QueryFunction"]["Environment"]["Variables"]
    assert {key: value for key, value in variables.items() if "_JWT_" in key} == IDP.environment
    assert not {name for name in variables if "GATEWAY_KEY" in name}


@pytest.fixture
async def surroundings(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[QuerySurroundings]:
    async with query_surroundings(postgres_server.app_url, make_tenant()) as started:
        yield started


@pytest.fixture
async def issuer() -> AsyncIterator[IdentityProvider]:
    async with identity_provider() as provider:
        yield provider


@pytest.fixture
async def url(surroundings: QuerySurroundings, issuer: IdentityProvider) -> AsyncIterator[str]:
    """A REST API before the function, with the stage's settings and this machine's keys."""
    variables = {**IDP.environment, "VECTORFORGE_JWT_JWKS_URL": issuer.settings.jwt_jwks_url or ""}
    configuration = query_function(surroundings, "stream", variables=variables)
    async with FunctionProcess(configuration) as function, RestApi(function) as door:
        yield door.url


def claims(tenant: str | None, scope: str = "vf:admin") -> dict[str, Any]:
    return {"https://acme.example/org": tenant, "scope": scope}


async def test_tenant_comes_from_verified_token_only(
    url: str, surroundings: QuerySurroundings, issuer: IdentityProvider, make_tenant: Callable[[], str]
) -> None:
    owner, stranger = surroundings.tenant, make_tenant()
    forged = issuer.token(**claims(owner))[:-4] + "AAAA"
    refused = {
        "no token": {},
        "forged": {"authorization": f"Bearer {forged}"},
        "other audience": {"authorization": f"Bearer {issuer.token(aud='other', **claims(owner))}"},
        "other issuer": {"authorization": f"Bearer {issuer.token(iss='https://x.example', **claims(owner))}"},
        "expired": {"authorization": f"Bearer {issuer.token(exp=1, **claims(owner))}"},
        "no tenant": {"authorization": f"Bearer {issuer.token(**claims(None))}"},
        "token as a key": {"x-api-key": issuer.token(**claims(owner))},
    }
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        for case, headers in refused.items():
            answer = await client.get(COLLECTIONS, headers={**headers, "x-tenant": owner})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), case
            assert answer.headers["content-type"] == "application/problem+json"
        seen = {}
        for tenant in (owner, stranger):
            token = {"authorization": f"Bearer {issuer.token(**claims(tenant, 'vf:read'))}"}
            answer = await client.get(COLLECTIONS, headers=token)
            seen[tenant] = [one["name"] for one in answer.json()["collections"]]
            created = await client.post(COLLECTIONS, headers=token, json={"name": "new"})
            assert (created.status_code, created.json()["code"]) == (403, "insufficient_scope")
    assert (bool(seen[owner]), seen[stranger]) == (True, [])


async def test_verification_uses_tokens(
    url: str,
    surroundings: QuerySurroundings,
    issuer: IdentityProvider,
    make_tenant: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ScriptedAws() as account:
        reach(account, monkeypatch)
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
            "Outputs": {"ApiUrl": {"Value": f"{url}/prod"}},
        }
        account.client("cloudformation").create_stack(
            StackName="VectorForge-oidc-App", TemplateBody=json.dumps(template)
        )
        status, evidence = await check("keys", STAGE)
        assert (status, TOKENS in evidence) == ("failed", True)
        tenants = (surroundings.tenant, make_tenant())
        tokens = {tenant: issuer.token(**claims(tenant)) for tenant in tenants}
        monkeypatch.setenv(TOKENS, json.dumps(tokens))
        assert await check("keys", STAGE) == (
            "passed", "without a key 401, with a wrong key 401, with a key 200"
        )  # fmt: skip
        assert (await check("tenants", STAGE))[0] == "passed"
        assert (await check("one-round-trip", STAGE))[0] == "passed"
        assert (await check("gateway-secret", STAGE))[0] == "skipped"


def changed(**changes: object) -> StageSettings:
    return dataclasses.replace(STAGE, **changes)  # type: ignore[arg-type] # of a test's table


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"user_pool": POOL}, "exclude each other"),
        ({"authorizer": DEV.migrate}, "authorizer must be None with token_issuer"),
        ({"web_acl": False}, "web_acl must be True with token_issuer"),
        (
            {"front_door": "function_url", "query": dataclasses.replace(DEV.query, max_concurrency=9)},
            "web_acl needs the REST API|token_issuer needs the REST API",
        ),
        ({"network": NetworkSettings(egress="none")}, "token_issuer needs egress"),
        ({"environment": {"VECTORFORGE_JWT_AUDIENCE": "other"}}, "use token_issuer"),
    ],
)
def test_contradicting_settings_are_rejected(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        changed(**changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"issuer": "http://idp.example"}, "issuer must be a URL that begins with https://"),
        ({"jwks_url": "idp.example/keys"}, "jwks_url must be a URL that begins with https://"),
        ({"audience": ""}, "audience must have at least 1 character"),
    ],
)
def test_malformed_issuer_is_rejected(change: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        changed(token_issuer=dataclasses.replace(IDP, **change))
