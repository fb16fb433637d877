"""API Gateway's keys with usage plans, one for each tenant, and the authorizer that reads them."""

from typing import cast

from aws_cdk import CfnOutput, Duration, RemovalPolicy, SecretValue, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.encryption import customer_key
from infra.constructs.python_function import PythonFunction
from infra.setting_types import FunctionSettings
from infra.stage_settings import StageSettings


class TenantKeys(Construct):
    """Keys without values: API Gateway generates them; the outputs ``KeyCommand...`` read them.

    They are created before the function, which maps ids to tenants by a secret, and added to a plan after the
    API, which avoids a dependency cycle. A secret, because a function's environment is limited to 4 KB.

    Attributes:
        environment: Variables of the query function: the secret that maps keys to tenants.
    """

    def __init__(self, scope: Construct, construct_id: str, stage: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self._keys = {
            tenant: apigateway.ApiKey(
                self,
                f"Key-{tenant}",
                api_key_name=f"{stage.prefix}-{tenant}",
                description=f"VectorForge ({stage.stage}): of the tenant {tenant}",
            )
            for tenant in stage.tenants
        }
        # Not json.dumps: the ids are CloudFormation's to fill in, and have letters and digits only.
        pairs = ", ".join(f'"{key.key_id}": "{tenant}"' for tenant, key in self._keys.items())
        self._tenants = secretsmanager.Secret(
            self,
            "Tenants",
            secret_name=f"{stage.prefix}/gateway-keys",
            encryption_key=customer_key(self, stage),
            description="Ids of API Gateway's keys, and whose they are; written by each deployment",
            secret_string_value=SecretValue.unsafe_plain_text(f"{{{pairs}}}"),  # ids open nothing
            removal_policy=RemovalPolicy.DESTROY,  # every deployment recreates it under the same name
        )
        self.environment = {"VECTORFORGE_GATEWAY_KEY_SECRET_ID": self._tenants.secret_arn}
        for tenant, key in self._keys.items():
            self._tell_how_to_read(tenant, key)

    def allow_reading(self, function: PythonFunction) -> None:
        """Allow a function to map keys to tenants."""
        function.allow("secretsmanager:GetSecretValue", on=[self._tenants.secret_arn])

    def admit_to(self, api_stage: apigateway.Stage) -> None:
        """Add a usage plan for each tenant; API Gateway answers 429 above its rate."""
        for tenant, key in self._keys.items():
            plan = apigateway.UsagePlan(
                self,
                f"Plan-{tenant}",
                name=f"{self._stage.prefix}-{tenant}",
                description=f"VectorForge ({self._stage.stage}): what the tenant {tenant} may ask",
                api_stages=[apigateway.UsagePlanPerApiStage(stage=api_stage)],
                throttle=apigateway.ThrottleSettings(
                    rate_limit=self._stage.requests_per_second, burst_limit=self._stage.burst
                ),
            )
            plan.add_api_key(key)

    def _tell_how_to_read(self, tenant: str, key: apigateway.IApiKey) -> None:
        stack = Stack.of(self)
        CfnOutput(
            stack,
            f"KeyCommand-{tenant}",
            description=f"Puts the API key of the tenant {tenant} into the shell's variable KEY",
            value=(
                f"KEY=$(aws apigateway get-api-key --region {stack.region} --api-key {key.key_id} "
                "--include-value --query value --output text)"
            ),
        )


class KeyAuthorizer(Construct):
    """A function that passes the key of a request to API Gateway, which checks it against the usage plans.

    It accepts keys in ``Authorization: Bearer``, too. Its results are not cached: a cache
    needs one header that every request has, and callers send one of two:
    https://docs.aws.amazon.com/apigateway/latest/developerguide/configure-api-gateway-lambda-authorization.html

    Attributes:
        authorizer: Authorizer of the methods that require a key.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, settings: FunctionSettings
    ) -> None:
        super().__init__(scope, construct_id)
        function = PythonFunction(
            self,
            "Function",
            function="authorizer",
            description=f"VectorForge ({stage.stage}): hands callers' keys to API Gateway",
            stage=stage,
            settings=settings,
            place=None,
            environment={},
            # Lambda's own lines of each invocation would cost more than the invocation.
            system_log_level_v2=lambda_.SystemLogLevel.WARN,
        )
        self.authorizer = apigateway.RequestAuthorizer(
            self,
            "Authorizer",
            authorizer_name=f"{stage.prefix}-key",
            handler=function.alias,
            identity_sources=[],
            results_cache_ttl=Duration.seconds(0),
        )
        resource = cast("apigateway.CfnAuthorizer", self.authorizer.node.default_child)
        resource.add_property_deletion_override("IdentitySource")  # CDK writes an empty one
