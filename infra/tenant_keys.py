"""API Gateway's keys, one for each tenant, and the plans that limit what a tenant may ask."""

from aws_cdk import CfnOutput, RemovalPolicy, SecretValue, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.python_function import PythonFunction
from infra.settings import StageSettings


class TenantKeys(Construct):
    """Keys without values: API Gateway makes them up, and whoever may run ``KeyCommand...`` reads them.

    They are made before the function, which learns from a secret which id is whose, and given to a plan when
    the API stands; so nothing waits in a circle. A secret, because a function's environment ends at 4 KB.

    Attributes:
        environment: Where the query function finds out which key is whose.
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
            description="Ids of API Gateway's keys, and whose they are; written by each deployment",
            secret_string_value=SecretValue.unsafe_plain_text(f"{{{pairs}}}"),  # ids open nothing
            removal_policy=RemovalPolicy.DESTROY,  # a deployment makes it again, and wants its name free
        )
        self.environment = {"VECTORFORGE_GATEWAY_KEY_SECRET_ID": self._tenants.secret_arn}
        for tenant, key in self._keys.items():
            self._tell_how_to_read(tenant, key)

    def allow_reading(self, function: PythonFunction) -> None:
        """Let a function look up which key is whose."""
        function.allow("secretsmanager:GetSecretValue", on=[self._tenants.secret_arn])

    def admit_to(self, api_stage: apigateway.Stage) -> None:
        """Let each tenant in, up to its rate; above it API Gateway answers 429."""
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
