"""Credentials at the REST API: keys, usage plans, the authorizer, and methods without a key."""

import re

import httpx2

from infra.stage_settings import StageSettings
from tests.infra.front_door_templates import ALIAS, AUTHORIZER, STREAMED, chosen, methods, preflights
from tests.infra.stack_template import StackTemplate, text
from tests.support.http.live_api import build_application, settings_for
from vectorforge.api.app import create_app


# C34
async def test_route_needs_a_gateway_key_where_the_application_needs_a_credential(
    app_templates: dict[str, StackTemplate],
) -> None:
    app = create_app(
        build_application(settings_for("postgresql://vectorforge_app@127.0.0.1:9/vectorforge", ["acme"]))
    )
    routes = [(verb.upper(), path) for path, verbs in app.openapi()["paths"].items() for verb in verbs]
    routes += [("HEAD", "/"), ("HEAD", "/health"), ("GET", "/openapi.json"), ("HEAD", "/openapi.json")]
    routes += [(verb, path) for verb in ("GET", "HEAD") for path in ("/statistics", "/source", "/docs")]
    found = methods(app_templates["dev"])
    without_key = set()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        for verb, path in routes:
            answer = await client.request(verb, re.sub(r"\{\w+\}", "x", path))
            refused = answer.status_code == 401
            assert chosen(found, verb, path)["ApiKeyRequired"] is refused, (verb, path, answer.status_code)
            if not refused:
                without_key.add((verb, path))
    # The API's other public paths are not routes of the application.
    assert without_key == {
        (verb, path)
        for path, verbs in found.items()
        for verb, method in verbs.items()
        if not method["ApiKeyRequired"]
    }


def test_alias_without_a_url_is_called_by_api_gateway_alone(
    template: StackTemplate,
) -> None:
    """A direct invocation sets the whole event, and so any tenant (docs/operate/identity.md)."""
    calls = [
        p for p in template.of_kind("AWS::Lambda::Permission").values() if text(p["FunctionName"]) == ALIAS
    ]
    direct = [
        p for p in calls if p["Action"] == "lambda:InvokeFunction" and not p.get("InvokedViaFunctionUrl")
    ]
    assert {p["Principal"] for p in direct} <= {"apigateway.amazonaws.com"}
    assert all(text(p["SourceArn"]).startswith("arn:AWS::Partition:execute-api:") for p in direct)
    assert len(direct) == len(template.of_kind("AWS::ApiGateway::Method"))


def test_bearer_keys_are_taken_where_the_stage_has_an_authorizer(
    rest: StackTemplate, app_templates: dict[str, StackTemplate]
) -> None:
    """It decides nothing: every method behind it also requires a key of a usage plan."""
    wanting = [m for verbs in methods(rest).values() for m in verbs.values() if m["ApiKeyRequired"]]
    source = rest.of_kind("AWS::ApiGateway::RestApi")["RestApi"]["ApiKeySourceType"]
    if rest is app_templates["both"]:  # has none
        assert source == "HEADER"
        assert [method["AuthorizationType"] for method in wanting] == ["NONE"]
        assert "RestApiKeyAuthorizerFunction" not in rest.of_kind("AWS::Lambda::Function")
        return
    assert source == "AUTHORIZER"
    assert [text(method["AuthorizerId"]) for method in wanting] == [AUTHORIZER]
    [authorizer] = rest.of_kind("AWS::ApiGateway::Authorizer").values()
    # The cache would use one header as its key, and callers send one of two.
    assert (authorizer["Type"], authorizer["AuthorizerResultTtlInSeconds"]) == ("REQUEST", 0)
    assert not authorizer.get("IdentitySource")
    assert "RestApiKeyAuthorizerFunctionAlias" in text(authorizer["AuthorizerUri"])


def test_authorizer_has_no_permissions_and_is_called_by_api_gateway_alone(
    app_templates: dict[str, StackTemplate],
) -> None:
    template = app_templates["dev"]
    function = template.of_kind("AWS::Lambda::Function")["RestApiKeyAuthorizerFunction"]
    assert "VpcConfig" not in function
    assert function["LoggingConfig"] | {"SystemLogLevel": "WARN"} == function["LoggingConfig"]
    assert template.permissions("RestApiKeyAuthorizerFunctionRole") == {
        ("logs:CreateLogStream", "RestApiKeyAuthorizerFunctionLogs.Arn"),
        ("logs:PutLogEvents", "RestApiKeyAuthorizerFunctionLogs.Arn"),
        ("xray:PutTraceSegments", "*"),
        ("xray:PutTelemetryRecords", "*"),
    }
    [call] = [
        permission
        for permission in template.of_kind("AWS::Lambda::Permission").values()
        if text(permission["FunctionName"]) == "RestApiKeyAuthorizerFunctionAlias"
    ]
    assert call["Principal"] == "apigateway.amazonaws.com"
    assert text(call["SourceArn"]).endswith(f"/authorizers/{AUTHORIZER}")


# F-005
def test_each_tenant_has_one_generated_key_and_a_usage_plan(
    template: StackTemplate, stage: StageSettings
) -> None:
    keys = template.of_kind("AWS::ApiGateway::ApiKey")
    tenants = stage.tenants if stage.front_door != "function_url" else ()
    assert sorted(key["Name"] for key in keys.values()) == sorted(
        f"{stage.prefix}-{tenant}" for tenant in tenants
    )
    assert not any("Value" in key for key in keys.values())
    plans = template.of_kind("AWS::ApiGateway::UsagePlan")
    for plan in plans.values():
        assert plan["Throttle"] == {"BurstLimit": stage.burst, "RateLimit": stage.requests_per_second}
        assert [text(api["Stage"]) for api in plan["ApiStages"]] == [f"RestApiDeploymentStage{stage.stage}"]
    pairs = {
        (text(p["UsagePlanId"]), text(p["KeyId"]))
        for p in template.of_kind("AWS::ApiGateway::UsagePlanKey").values()
    }
    names = {f"{tenant.replace('-', '')}" for tenant in tenants}
    assert pairs == {(f"TenantKeysPlan{name}", f"TenantKeysKey{name}") for name in names}


def test_methods_without_a_key_are_throttled_below_those_with_one(rest: StackTemplate) -> None:
    [api_stage] = rest.of_kind("AWS::ApiGateway::Stage").values()
    limits = {
        (m["HttpMethod"], m["ResourcePath"]): m["ThrottlingRateLimit"] for m in api_stage["MethodSettings"]
    }
    for path, verbs in methods(rest).items():
        for verb, method in verbs.items():
            if not method["ApiKeyRequired"]:
                most = 100 if verb == "OPTIONS" else 10  # preflights end in the function's outermost layer
                assert limits[verb, "/" if path == "/" else "/~1" + path[1:]] == most
    assert limits["*", "/*"] > 10


def test_preflights_need_no_key_where_origins_are_configured(
    app_templates: dict[str, StackTemplate],
) -> None:
    web = app_templates["web"]
    found = preflights(web)
    public = {"/", "/health", "/openapi.json", "/statistics", "/source", "/docs"}
    assert set(found) == set(methods(web)) == {*public, "/{proxy+}"}
    for path, method in found.items():
        assert method["ApiKeyRequired"] is False, path
        assert (method["AuthorizationType"], method.get("AuthorizerId")) == ("NONE", None), path
        assert text(method["Integration"]["Uri"]) == STREAMED, path
    key_wanting = methods(web)["/{proxy+}"]["ANY"]
    assert (key_wanting["ApiKeyRequired"], text(key_wanting["AuthorizerId"])) == (True, AUTHORIZER)
    for stage in ("dev", "prod", "both"):
        assert preflights(app_templates[stage]) == {}
