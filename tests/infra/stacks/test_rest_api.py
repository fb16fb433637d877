"""The REST API: streaming, logs, TLS, its own responses, the firewall."""

import json
import re

from infra.stage_settings import StageSettings
from tests.infra.front_door_templates import STREAMED, methods, preflights
from tests.infra.stack_template import StackTemplate, text
from vectorforge.api.error_schemas import Problem
from vectorforge.api.problems import STATUS_OF
from vectorforge.config import ServerSettings, VectorForgeConfig
from vectorforge.errors import AuthenticationError, DeadlineExceededError


def test_front_doors_are_those_of_the_stage(template: StackTemplate, stage: StageSettings) -> None:
    doors = {
        "rest_api": "AWS::ApiGateway::RestApi" in {r["Type"] for r in template.resources.values()},
        "function_url": bool(template.of_kind("AWS::Lambda::Url")),
        "cloudfront": bool(template.of_kind("AWS::CloudFront::Distribution")),
        "keys": bool(template.of_kind("AWS::ApiGateway::ApiKey")),
    }
    rest, url = stage.front_door != "function_url", stage.front_door != "rest_api"
    assert doors == {"rest_api": rest, "function_url": url, "cloudfront": url, "keys": rest}


# F-001
def test_api_methods_stream_from_alias_with_sufficient_timeout(rest: StackTemplate) -> None:
    timeout_s = rest.of_kind("AWS::Lambda::Function")["QueryFunction"]["Timeout"]
    found = [method["Integration"] for verbs in methods(rest).values() for method in verbs.values()]
    explorer = 2 if "/docs" in methods(rest) else 0
    assert len(found) == 11 + explorer + len(preflights(rest))
    for integration in found:
        assert integration["Type"] == "AWS_PROXY"
        assert integration["ResponseTransferMode"] == "STREAM"
        assert text(integration["Uri"]) == STREAMED
        assert timeout_s * 1000 < integration["TimeoutInMillis"] <= 900_000
    api = rest.of_kind("AWS::ApiGateway::RestApi")["RestApi"]
    assert api["EndpointConfiguration"]["Types"] == ["REGIONAL"]


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


def test_log_groups_have_the_retention_of_the_stage_and_the_role_is_retained(
    rest: StackTemplate, app_templates: dict[str, StackTemplate]
) -> None:
    [name] = rest.of_kind("AWS::ApiGateway::Stage")
    groups = rest.of_kind("AWS::Logs::LogGroup")
    assert {"RestApiExecutionLogs", "RestApiAccessLogs"} <= rest.dependencies(name) & set(groups)
    assert text(groups["RestApiExecutionLogs"]["LogGroupName"]).startswith(
        "API-Gateway-Execution-Logs_RestApi/"
    )
    accounts = rest.of_kind("AWS::ApiGateway::Account")
    if rest is app_templates["both"]:  # sets the account's role
        assert not accounts
        return
    assert "RestApiAccount" in rest.dependencies(name)
    for retained in ("RestApiAccount", "RestApiLogRole"):
        assert rest.resources[retained]["DeletionPolicy"] == "Retain"


def test_tls_of_the_rest_api_is_at_least_1_2(rest: StackTemplate) -> None:
    api = rest.of_kind("AWS::ApiGateway::RestApi")["RestApi"]
    assert api["SecurityPolicy"] == "SecurityPolicy_TLS13_1_2_PFS_PQ_2025_09"
    assert api["EndpointAccessMode"] == "STRICT"


def test_gateway_responses_are_problem_documents(rest: StackTemplate) -> None:
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


def test_query_function_gets_the_origins_of_the_stage(template: StackTemplate, stage: StageSettings) -> None:
    variables = template.of_kind("AWS::Lambda::Function")["QueryFunction"]["Environment"]["Variables"]
    assert variables.get("VECTORFORGE_CORS_ORIGINS", "") == ",".join(stage.cors_origins)
    assert VectorForgeConfig(server=ServerSettings(cors_origins=stage.cors_origins)).server.cors_origins == (
        stage.cors_origins
    )


def test_gateway_responses_are_readable_for_configured_origins(
    rest: StackTemplate, app_templates: dict[str, StackTemplate]
) -> None:
    """These responses have no data, and a gateway response cannot select among several origins."""
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
    assert {"DEFAULT_4XX", "DEFAULT_5XX"} <= set(kinds)  # covers all its own responses
    assert kinds["WAF_FILTERED"] == "403"


def test_firewall_counts_without_samples_of_headers(template: StackTemplate, stage: StageSettings) -> None:
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
