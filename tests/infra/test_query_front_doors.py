"""What stands before the query function: who gets in, what is logged, what is told. F-001, F-005."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

import httpx2
import pytest

from infra.settings import StageSettings
from tests.infra.conftest import VARIANTS
from tests.infra.stack_template import StackTemplate, text
from tests.support.http.live_api import build_application, settings_for
from vectorforge.api.app import create_app
from vectorforge.api.problems import STATUS_OF
from vectorforge.api.schemas import Problem
from vectorforge.config import ServerSettings, VectorForgeConfig
from vectorforge.errors import AuthenticationError, DeadlineExceededError

ALIAS = "QueryFunctionAlias"
AUTHORIZER = "RestApiKeyAuthorizer"
LAMBDA = "arn:AWS::Partition:apigateway:AWS::Region:lambda:path"
STREAMED = f"{LAMBDA}/2021-11-15/functions/{ALIAS}/response-streaming-invocations"


@pytest.fixture(params=VARIANTS, ids=lambda stage: stage.stage)
def stage(request: pytest.FixtureRequest) -> StageSettings:
    return cast("StageSettings", request.param)


@pytest.fixture
def template(stage: StageSettings, app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates[stage.stage]


@pytest.fixture(
    params=[stage for stage in VARIANTS if stage.front_door != "function_url"], ids=lambda stage: stage.stage
)
def rest(request: pytest.FixtureRequest, app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates[request.param.stage]


@pytest.fixture(
    params=[stage for stage in VARIANTS if stage.front_door != "rest_api"], ids=lambda stage: stage.stage
)
def url(request: pytest.FixtureRequest, app_templates: dict[str, StackTemplate]) -> StackTemplate:
    return app_templates[request.param.stage]


def methods(template: StackTemplate) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Every method of the REST API, by path and HTTP method."""
    resources = template.of_kind("AWS::ApiGateway::Resource")
    paths = {"RestApi.RootResourceId": "/"}
    for name, resource in resources.items():
        assert text(resource["ParentId"]) == "RestApi.RootResourceId"
        paths[name] = f"/{resource['PathPart']}"
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for method in template.of_kind("AWS::ApiGateway::Method").values():
        found.setdefault(paths[text(method["ResourceId"])], {})[method["HttpMethod"]] = method
    return found


def chosen(methods: dict[str, dict[str, Mapping[str, Any]]], verb: str, path: str) -> Mapping[str, Any]:
    """The method that API Gateway chooses: the longest resource, then the verb, then ANY."""
    verbs = methods[path] if path in methods else methods["/{proxy+}"]
    return verbs[verb] if verb in verbs else verbs["ANY"]


def preflights(template: StackTemplate) -> dict[str, Mapping[str, Any]]:
    """The methods that answer preflights, by path."""
    return {path: verbs["OPTIONS"] for path, verbs in methods(template).items() if "OPTIONS" in verbs}


def test_the_front_doors_are_those_of_the_stage(template: StackTemplate, stage: StageSettings) -> None:
    doors = {
        "rest_api": "AWS::ApiGateway::RestApi" in {r["Type"] for r in template.resources.values()},
        "function_url": bool(template.of_kind("AWS::Lambda::Url")),
        "cloudfront": bool(template.of_kind("AWS::CloudFront::Distribution")),
        "keys": bool(template.of_kind("AWS::ApiGateway::ApiKey")),
    }
    rest, url = stage.front_door != "function_url", stage.front_door != "rest_api"
    assert doors == {"rest_api": rest, "function_url": url, "cloudfront": url, "keys": rest}


# F-001
def test_every_method_streams_from_the_alias_longer_than_an_answer_takes(rest: StackTemplate) -> None:
    timeout_s = rest.of_kind("AWS::Lambda::Function")["QueryFunction"]["Timeout"]
    found = [method["Integration"] for verbs in methods(rest).values() for method in verbs.values()]
    assert len(found) == 9 + len(preflights(rest))
    for integration in found:
        assert integration["Type"] == "AWS_PROXY"
        assert integration["ResponseTransferMode"] == "STREAM"
        assert text(integration["Uri"]) == STREAMED
        assert timeout_s * 1000 < integration["TimeoutInMillis"] <= 900_000
    api = rest.of_kind("AWS::ApiGateway::RestApi")["RestApi"]
    assert api["EndpointConfiguration"]["Types"] == ["REGIONAL"]


# C34
async def test_a_route_wants_a_key_of_api_gateway_where_the_application_wants_a_credential(
    app_templates: dict[str, StackTemplate],
) -> None:
    app = create_app(
        build_application(settings_for("postgresql://vectorforge_app@127.0.0.1:9/vectorforge", ["acme"]))
    )
    routes = [(verb.upper(), path) for path, verbs in app.openapi()["paths"].items() for verb in verbs]
    routes += [("HEAD", "/"), ("HEAD", "/health"), ("GET", "/openapi.json"), ("HEAD", "/openapi.json")]
    routes += [("GET", "/statistics"), ("HEAD", "/statistics")]
    found = methods(app_templates["dev"])
    without_key = set()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as client:
        for verb, path in routes:
            answer = await client.request(verb, re.sub(r"\{\w+\}", "x", path))
            refused = answer.status_code == 401
            assert chosen(found, verb, path)["ApiKeyRequired"] is refused, (verb, path, answer.status_code)
            if not refused:
                without_key.add((verb, path))
    # What the API lets in besides is no route of the application.
    assert without_key == {
        (verb, path)
        for path, verbs in found.items()
        for verb, method in verbs.items()
        if not method["ApiKeyRequired"]
    }


def test_only_api_gateway_calls_the_alias_without_a_url_and_only_for_its_methods(
    template: StackTemplate,
) -> None:
    """Whoever invokes a function writes the whole event, and so could be any tenant (docs/operate/identity.md)."""
    calls = [
        p for p in template.of_kind("AWS::Lambda::Permission").values() if text(p["FunctionName"]) == ALIAS
    ]
    direct = [
        p for p in calls if p["Action"] == "lambda:InvokeFunction" and not p.get("InvokedViaFunctionUrl")
    ]
    assert {p["Principal"] for p in direct} <= {"apigateway.amazonaws.com"}
    assert all(text(p["SourceArn"]).startswith("arn:AWS::Partition:execute-api:") for p in direct)
    assert len(direct) == len(template.of_kind("AWS::ApiGateway::Method"))


def test_keys_come_as_bearer_too_where_an_authorizer_hands_them_on(
    rest: StackTemplate, app_templates: dict[str, StackTemplate]
) -> None:
    """It decides nothing: every method that it stands before wants a key of a usage plan besides."""
    wanting = [m for verbs in methods(rest).values() for m in verbs.values() if m["ApiKeyRequired"]]
    source = rest.of_kind("AWS::ApiGateway::RestApi")["RestApi"]["ApiKeySourceType"]
    if rest is app_templates["both"]:  # which has none
        assert source == "HEADER"
        assert [method["AuthorizationType"] for method in wanting] == ["NONE"]
        assert "RestApiKeyAuthorizerFunction" not in rest.of_kind("AWS::Lambda::Function")
        return
    assert source == "AUTHORIZER"
    assert [text(method["AuthorizerId"]) for method in wanting] == [AUTHORIZER]
    [authorizer] = rest.of_kind("AWS::ApiGateway::Authorizer").values()
    # Kept answers would be found by one header, and callers send one of two.
    assert (authorizer["Type"], authorizer["AuthorizerResultTtlInSeconds"]) == ("REQUEST", 0)
    assert not authorizer.get("IdentitySource")
    assert "RestApiKeyAuthorizerFunctionAlias" in text(authorizer["AuthorizerUri"])


def test_the_authorizer_reaches_nothing_and_is_called_by_api_gateway_alone(
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


def test_the_url_wants_iam_and_admits_cloudfront_and_those_named(
    url: StackTemplate, app_templates: dict[str, StackTemplate]
) -> None:
    assert url.of_kind("AWS::Lambda::Url")["QueryUrl"]["AuthType"] == "AWS_IAM"
    assert url.of_kind("AWS::Lambda::Url")["QueryUrl"]["InvokeMode"] == "RESPONSE_STREAM"
    distribution = "arn:AWS::Partition:cloudfront::AWS::AccountId:distribution/QueryUrlDistribution"
    callers = {("cloudfront.amazonaws.com", distribution)}
    if url is app_templates["both"]:
        callers.add(("arn:aws:iam::123456789012:role/teams/acme-reader", ""))
    permissions = [
        p for p in url.of_kind("AWS::Lambda::Permission").values() if text(p["FunctionName"]) == ALIAS
    ]
    for action, condition in (
        ("lambda:InvokeFunctionUrl", ("FunctionUrlAuthType", "AWS_IAM")),
        ("lambda:InvokeFunction", ("InvokedViaFunctionUrl", True)),
    ):  # both are needed: https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html
        found = [p for p in permissions if p["Action"] == action and p.get(condition[0]) == condition[1]]
        assert {(p["Principal"], text(p.get("SourceArn", ""))) for p in found} == callers


def test_cloudfront_signs_and_neither_caches_nor_holds_back(url: StackTemplate) -> None:
    config = url.of_kind("AWS::CloudFront::Distribution")["QueryUrlDistribution"]["DistributionConfig"]
    behaviour, [origin] = config["DefaultCacheBehavior"], config["Origins"]
    assert behaviour["CachePolicyId"] == "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"  # CachingDisabled
    assert (
        behaviour["OriginRequestPolicyId"] == "b689b0a8-53d0-40ab-baf2-68738e2966ac"
    )  # AllViewerExceptHostHeader
    assert behaviour["Compress"] is False
    assert behaviour["ViewerProtocolPolicy"] == "https-only"
    assert {"GET", "POST", "DELETE"} <= set(behaviour["AllowedMethods"])
    assert text(origin["OriginAccessControlId"]) == "QueryUrlAccessControl.Id"
    # The most that CloudFront takes, and much more than the 15 s between two pings of a silent stream.
    assert origin["CustomOriginConfig"]["OriginReadTimeout"] == 120
    signing = url.of_kind("AWS::CloudFront::OriginAccessControl")["QueryUrlAccessControl"][
        "OriginAccessControlConfig"
    ]
    assert (signing["OriginAccessControlOriginType"], signing["SigningBehavior"]) == ("lambda", "always")
    if "ViewerCertificate" in config:
        assert config["ViewerCertificate"]["MinimumProtocolVersion"] == "TLSv1.2_2021"


# F-005
def test_each_tenant_has_one_key_which_aws_makes_up_and_a_plan(
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


def test_nobody_without_a_key_takes_the_function_from_those_with_one(rest: StackTemplate) -> None:
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


def test_access_logs_are_json_without_keys_and_query_strings(rest: StackTemplate) -> None:
    [api_stage] = rest.of_kind("AWS::ApiGateway::Stage").values()
    fields = json.loads(api_stage["AccessLogSetting"]["Format"])
    assert {"$context.requestId", "$context.status", "$context.identity.apiKeyId"} <= set(fields.values())
    for value in fields.values():
        assert value.startswith("$context.")
        assert not re.search(r"apiKey$|query|header|body|authoriz", value, re.IGNORECASE)
    assert text(api_stage["AccessLogSetting"]["DestinationArn"]) == "RestApiAccessLogs.Arn"
    assert api_stage["TracingEnabled"] is True
    for settings in api_stage["MethodSettings"]:
        assert (settings["LoggingLevel"], settings["DataTraceEnabled"]) == ("ERROR", False)


def test_logs_are_kept_as_long_as_the_stage_says_and_the_role_for_them_stays(
    rest: StackTemplate, app_templates: dict[str, StackTemplate]
) -> None:
    [name] = rest.of_kind("AWS::ApiGateway::Stage")
    groups = rest.of_kind("AWS::Logs::LogGroup")
    assert {"RestApiExecutionLogs", "RestApiAccessLogs"} <= rest.dependencies(name) & set(groups)
    assert text(groups["RestApiExecutionLogs"]["LogGroupName"]).startswith(
        "API-Gateway-Execution-Logs_RestApi/"
    )
    accounts = rest.of_kind("AWS::ApiGateway::Account")
    if rest is app_templates["both"]:  # which says that the account has a role
        assert not accounts
        return
    assert "RestApiAccount" in rest.dependencies(name)
    for kept in ("RestApiAccount", "RestApiLogRole"):
        assert rest.resources[kept]["DeletionPolicy"] == "Retain"


def test_tls_is_of_version_1_2_at_least(rest: StackTemplate) -> None:
    api = rest.of_kind("AWS::ApiGateway::RestApi")["RestApi"]
    assert api["SecurityPolicy"] == "SecurityPolicy_TLS13_1_2_PFS_PQ_2025_09"
    assert api["EndpointAccessMode"] == "STRICT"


def test_what_api_gateway_answers_itself_is_a_problem_document(rest: StackTemplate) -> None:
    responses = rest.of_kind("AWS::ApiGateway::GatewayResponse")
    statuses = {}
    for response in responses.values():
        [document] = response["ResponseTemplates"].values()
        problem = Problem.model_validate_json(document)
        assert problem.request_id == "$context.requestId"
        assert problem.type == f"urn:vectorforge:problem:{problem.code}"
        assert response["StatusCode"] == str(problem.status)
        assert (
            response["ResponseParameters"]["gatewayresponse.header.Content-Type"]
            == "'application/problem+json'"
        )
        statuses[response["ResponseType"]] = (problem.status, problem.code)
    assert statuses["ACCESS_DENIED"] == statuses["INVALID_API_KEY"]
    assert statuses["INVALID_API_KEY"] == (STATUS_OF[AuthenticationError], AuthenticationError.code)
    assert statuses["INTEGRATION_TIMEOUT"] == (STATUS_OF[DeadlineExceededError], DeadlineExceededError.code)
    assert statuses["THROTTLED"][0] == 429
    assert responses["RestApiTooMany"]["ResponseParameters"]["gatewayresponse.header.Retry-After"] == "'1'"


def test_preflights_reach_the_application_without_a_key_where_origins_are_configured(
    app_templates: dict[str, StackTemplate],
) -> None:
    web = app_templates["web"]
    found = preflights(web)
    assert set(found) == set(methods(web)) == {"/", "/health", "/openapi.json", "/statistics", "/{proxy+}"}
    for path, method in found.items():
        assert method["ApiKeyRequired"] is False, path
        assert (method["AuthorizationType"], method.get("AuthorizerId")) == ("NONE", None), path
        assert text(method["Integration"]["Uri"]) == STREAMED, path
    key_wanting = methods(web)["/{proxy+}"]["ANY"]
    assert (key_wanting["ApiKeyRequired"], text(key_wanting["AuthorizerId"])) == (True, AUTHORIZER)
    for stage in ("dev", "prod", "both"):
        assert preflights(app_templates[stage]) == {}


def test_the_query_function_gets_the_origins_of_the_stage(
    template: StackTemplate, stage: StageSettings
) -> None:
    variables = template.of_kind("AWS::Lambda::Function")["QueryFunction"]["Environment"]["Variables"]
    assert variables.get("VECTORFORGE_CORS_ORIGINS", "") == ",".join(stage.cors_origins)
    assert VectorForgeConfig(server=ServerSettings(cors_origins=stage.cors_origins)).server.cors_origins == (
        stage.cors_origins
    )


def test_pages_of_other_origins_read_what_api_gateway_answers_itself(
    rest: StackTemplate, app_templates: dict[str, StackTemplate]
) -> None:
    """These answers hold no data, and a gateway response cannot choose among several origins."""
    is_web = rest is app_templates["web"]
    responses = rest.of_kind("AWS::ApiGateway::GatewayResponse").values()
    for response in responses:
        headers = response["ResponseParameters"]
        prefix = "gatewayresponse.header.Access-Control-"
        assert headers.get(f"{prefix}Allow-Origin") == ("'*'" if is_web else None)
        assert headers.get(f"{prefix}Expose-Headers") == (
            "'Retry-After,X-Amzn-RequestId'" if is_web else None
        )
    kinds = {response["ResponseType"]: response["StatusCode"] for response in responses}
    assert {"DEFAULT_4XX", "DEFAULT_5XX"} <= set(kinds)  # so none of API Gateway's own lacks the headers
    assert kinds["WAF_FILTERED"] == "403"


def test_cloudfront_passes_preflights_and_origins_on(url: StackTemplate) -> None:
    config = url.of_kind("AWS::CloudFront::Distribution")["QueryUrlDistribution"]["DistributionConfig"]
    behaviour = config["DefaultCacheBehavior"]
    assert "OPTIONS" in behaviour["AllowedMethods"]
    assert "OPTIONS" not in behaviour.get("CachedMethods", [])
    # AllViewerExceptHostHeader: Origin and Access-Control-Request-* reach the application.
    assert behaviour["OriginRequestPolicyId"] == "b689b0a8-53d0-40ab-baf2-68738e2966ac"
    # SecurityHeadersPolicy has no CORS headers, and neither has the URL: the application's are the only ones.
    assert behaviour["ResponseHeadersPolicyId"] == "67f7725c-6f97-4210-82d7-5512b31e9d03"
    assert "Cors" not in url.of_kind("AWS::Lambda::Url")["QueryUrl"]


def test_the_firewall_counts_without_keeping_headers(template: StackTemplate, stage: StageSettings) -> None:
    acls = template.of_kind("AWS::WAFv2::WebACL")
    assert bool(acls) is stage.web_acl
    for acl in acls.values():
        configs = [acl["VisibilityConfig"], *(rule["VisibilityConfig"] for rule in acl["Rules"])]
        assert [config["SampledRequestsEnabled"] for config in configs] == [False] * 3
        [flood] = [rule for rule in acl["Rules"] if "RateBasedStatement" in rule["Statement"]]
        honest = stage.requests_per_second * len(stage.tenants) * 300
        assert flood["Statement"]["RateBasedStatement"]["Limit"] > honest
        [association] = template.of_kind("AWS::WAFv2::WebACLAssociation").values()
        assert text(association["ResourceArn"]).endswith(f"/stages/RestApiDeploymentStage{stage.stage}")
