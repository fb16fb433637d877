"""API Gateway's keys, one for each tenant, and the plans that limit what a tenant may ask."""

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_apigateway as apigateway
from constructs import Construct

from infra.settings import StageSettings


class TenantKeys(Construct):
    """Keys without values: API Gateway makes them up, and whoever may run ``KeyCommand...`` reads them.

    They are made before the function, which is told their ids, and given to a plan when the API stands; so
    nothing waits in a circle.

    Attributes:
        environment: Which key is whose, for the query function.
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
        self.environment = {"VECTORFORGE_API_GATEWAY_KEYS": f"{{{pairs}}}"}
        for tenant, key in self._keys.items():
            self._tell_how_to_read(tenant, key)

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
