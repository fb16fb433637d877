"""API Gateway before the query function: a REST API, the only kind that streams."""

import json
from typing import cast

from aws_cdk import CfnOutput, Duration, RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_cognito as cognito
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.python_function import PythonFunction
from infra.constructs.retention import log_group
from infra.front_doors.domain import ApiDomain
from infra.front_doors.gateway_keys import KeyAuthorizer, TenantKeys
from infra.front_doors.gateway_responses import add_gateway_responses
from infra.front_doors.web_acl import WebAcl
from infra.stage_settings import StageSettings

EXPLORER_PATH = "/docs"
PUBLIC_PATHS = ("/", "/health", "/openapi.json", "/statistics", "/source", EXPLORER_PATH)
"""Paths that need no key, as in ``vectorforge.api.request_state``; the explorer only if the stage has it."""

EXAMPLE_BODY = '{"query": "What is this collection about?", "stream": true}'

_PUBLIC_REQUESTS_PER_SECOND = 10
"""Limit of each public path for all callers, so that callers without a key leave capacity to tenants."""

_PREFLIGHTS_PER_SECOND = 100
"""Limit for all callers; the application answers them at once, and browsers cache the answers."""

_READING = ("GET", "HEAD")

_TLS_1_2_OR_1_3 = "SecurityPolicy_TLS13_1_2_PFS_PQ_2025_09"
"""https://docs.aws.amazon.com/apigateway/latest/developerguide/apigateway-security-policies-list.html"""

_LONGEST_STREAM_S = 900
"""https://docs.aws.amazon.com/apigateway/latest/developerguide/response-transfer-mode.html"""

_COLD_START_S = 15
"""Time that the function's timeout does not count: https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html"""


class RestApi(Construct):
    """Streams answers; every path except the public ones requires an API key, or a token of the user pool.

    With ``StageSettings.token_issuer`` every request passes, and the query function requires a token.

    Args:
        function: The query function.
        keys: The tenants' keys; None with ``StageSettings.tokens``.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        function: PythonFunction,
        keys: TenantKeys | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self._public = [path for path in PUBLIC_PATHS if path != EXPLORER_PATH or stage.api_explorer]
        self._preflights = [*self._public, "/{proxy+}"] if stage.cors_origins else []
        self._api = self._make_api()
        self._api_stage = self._api.deployment_stage
        self._url = self._api_stage.url_for_path("/").rstrip("/")
        self._prepare_logs()
        self._route(function)
        if keys is not None:
            keys.admit_to(self._api_stage)
        if stage.web_acl:
            WebAcl(self, "WebAcl", stage=stage, api_stage=self._api_stage)
        if stage.domain is not None:
            self._url = ApiDomain(
                self, "Domain", settings=stage.domain, api=self._api, security_policy=_TLS_1_2_OR_1_3
            ).url
        self._tell_where()

    def _make_api(self) -> apigateway.RestApi:
        source = apigateway.ApiKeySourceType
        api = apigateway.RestApi(
            self,
            "Api",
            rest_api_name=self._stage.prefix,
            description=f"VectorForge ({self._stage.stage}): queries and documents",
            # Edge-optimised APIs end a stream after 30 silent seconds, regional ones after five minutes.
            endpoint_types=[apigateway.EndpointType.REGIONAL],
            api_key_source_type=source.AUTHORIZER if self._stage.authorizer else source.HEADER,
            # Uploads. JSON stays text: as Base64 it would come to Lambda's 6 MB sooner.
            binary_media_types=["multipart/form-data"],
            default_method_options=apigateway.MethodOptions(api_key_required=self._stage.has_gateway_keys),
            cloud_watch_role=False,
            deploy_options=self._stage_options(),
        )
        api.node.try_remove_child("Endpoint")  # CDK's own output; ours are in _tell_where
        # CDK has no arguments for these: https://github.com/aws/aws-cdk/issues/36663. The default is TLS 1.0.
        resource = cast("apigateway.CfnRestApi", api.node.default_child)
        resource.security_policy = _TLS_1_2_OR_1_3
        resource.endpoint_access_mode = "STRICT"
        add_gateway_responses(
            api, for_pages=bool(self._stage.cors_origins), tokens=self._stage.user_pool is not None
        )
        return api

    def _stage_options(self) -> apigateway.StageOptions:
        tenants = len(self._stage.tenants)
        unkeyed = {
            f"{path}/{method}": _limited(_PUBLIC_REQUESTS_PER_SECOND)
            for path in self._public
            for method in _READING
        }
        unkeyed |= {f"{path}/OPTIONS": _limited(_PREFLIGHTS_PER_SECOND) for path in self._preflights}
        access_logs = log_group(self, "AccessLogs", self._stage, f"/aws/apigateway/{self._stage.prefix}")
        return apigateway.StageOptions(
            stage_name=self._stage.stage,
            description=f"VectorForge ({self._stage.stage})",
            tracing_enabled=self._stage.otel is None,
            # Metrics of API and stage are free of charge, those of each method are not.
            metrics_enabled=False,
            access_log_destination=apigateway.LogGroupLogDestination(access_logs),
            access_log_format=_access_log_format(self._stage),
            logging_level=apigateway.MethodLoggingLevel.ERROR,
            data_trace_enabled=False,  # it would log queries and answers
            throttling_rate_limit=self._stage.requests_per_second * tenants,
            throttling_burst_limit=self._stage.burst * tenants,
            method_options=unkeyed,
        )

    def _prepare_logs(self) -> None:
        """Create the log groups and the role that the stage depends on."""
        name = f"API-Gateway-Execution-Logs_{self._api.rest_api_id}/{self._stage.stage}"
        # API Gateway would make the group on its own, and keep its logs forever.
        execution_logs = log_group(self, "ExecutionLogs", self._stage, name)
        self._api_stage.node.add_dependency(execution_logs)
        if self._stage.api_gateway_log_role:
            self._api_stage.node.add_dependency(self._allow_logs())

    def _allow_logs(self) -> apigateway.CfnAccount:
        """Create the role of all APIs of account and region; retained, since other APIs may rely on it.

        https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-logging.html
        """
        role = iam.Role(
            self,
            "LogRole",
            assumed_by=iam.ServicePrincipal("apigateway.amazonaws.com"),
            description="Lets API Gateway write logs, for all APIs of this account and region",
            managed_policies=[
                iam.ManagedPolicy.from_aws_managed_policy_name(
                    "service-role/AmazonAPIGatewayPushToCloudWatchLogs"
                )
            ],
        )
        account = apigateway.CfnAccount(self, "Account", cloud_watch_role_arn=role.role_arn)
        role.apply_removal_policy(RemovalPolicy.RETAIN)
        account.apply_removal_policy(RemovalPolicy.RETAIN)
        return account

    def _route(self, function: PythonFunction) -> None:
        """Add ``ANY /{proxy+}`` with a key; GET and HEAD of the public paths, and preflights, without one."""
        integration = apigateway.LambdaIntegration(
            function.alias,
            response_transfer_mode=apigateway.ResponseTransferMode.STREAM,
            timeout=Duration.seconds(min(self._stage.query.timeout_s + _COLD_START_S, _LONGEST_STREAM_S)),
            allow_test_invoke=False,
        )
        for path in self._public:
            resource = self._api.root.resource_for_path(path)
            for method in _READING:
                resource.add_method(method, integration, api_key_required=False)
        self._api.root.add_resource("{proxy+}").add_method("ANY", integration, authorizer=self._authorizer())
        for path in self._preflights:
            # Browsers send them without a credential; the application knows the origins.
            self._api.root.resource_for_path(path).add_method("OPTIONS", integration, api_key_required=False)

    def _authorizer(self) -> apigateway.IAuthorizer | None:
        if self._stage.authorizer is not None:
            made = KeyAuthorizer(self, "KeyAuthorizer", stage=self._stage, settings=self._stage.authorizer)
            return made.authorizer
        if self._stage.user_pool is None:
            return None
        pool = cognito.UserPool.from_user_pool_arn(self, "UserPool", self._stage.user_pool.arn)
        # Without scopes API Gateway accepts ID tokens, which have the claims of the tenant.
        return apigateway.CognitoUserPoolsAuthorizer(
            self, "Tokens", authorizer_name=f"{self._stage.prefix}-token", cognito_user_pools=[pool]
        )

    def _tell_where(self) -> None:
        stack = Stack.of(self)
        after, credential = "after KeyCommand", "x-api-key: $KEY"
        if self._stage.tokens is not None:
            kind = "ID token of the user pool" if self._stage.user_pool else "access token of the issuer"
            after, credential = f"with an {kind} in TOKEN", "authorization: Bearer $TOKEN"
        CfnOutput(stack, "ApiUrl", description="The REST API", value=self._url)
        CfnOutput(
            stack,
            "ApiExample",
            description=f"Queries the API, {after}",
            value=(
                f'curl -N {self._url}/v1/rag/query -H "{credential}" '
                f"-H 'content-type: application/json' -d '{EXAMPLE_BODY}'"
            ),
        )


def _limited(requests_per_second: int) -> apigateway.MethodDeploymentOptions:
    """Return the limits of a method without a key."""
    return apigateway.MethodDeploymentOptions(
        throttling_rate_limit=requests_per_second,
        throttling_burst_limit=2 * requests_per_second,
        logging_level=apigateway.MethodLoggingLevel.ERROR,
    )


def _access_log_format(stage: StageSettings) -> apigateway.AccessLogFormat:
    """Return one JSON object for each request, with the id of the key or user, no query string or header.

    With ``token_issuer`` API Gateway does not know the caller; the function's own log has the credential.

    https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-mapping-template-reference.html
    """
    field = apigateway.AccessLogField
    caller = {"apiKeyId": field.context_identity_api_key_id()} if stage.has_gateway_keys else {}
    if stage.user_pool is not None:
        caller = {"subject": field.context_authorizer_claims("sub")}
    return apigateway.AccessLogFormat.custom(
        json.dumps(
            {
                "requestId": field.context_request_id(),
                "extendedRequestId": field.context_extended_request_id(),
                "requestTimeEpoch": field.context_request_time_epoch(),
                "ip": field.context_identity_source_ip(),
                **caller,
                "method": field.context_http_method(),
                "path": field.context_path(),
                "status": field.context_status(),
                "responseBytes": field.context_response_length(),
                "latencyMs": field.context_response_latency(),
                "integrationLatencyMs": field.context_integration_latency(),
                "integrationStatus": field.context_integration_status(),
                "integrationError": field.context_integration_error_message(),
                "error": field.context_error_response_type(),
                "traceId": field.context_xray_trace_id(),
            }
        )
    )
