"""Values of the database for other stacks, in Parameter Store instead of exports.

CloudFormation refuses to change an export that another stack imports, and so to replace the database. A
parameter may change: the next deployment of the other stack reads it again.
"""

from aws_cdk import Fn, Stack
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.stage_settings import StageSettings


class PublishedValues(Construct):
    """Parameters ``/<prefix>/database/<name>``; none is secret.

    Args:
        stage: The stage's settings.
    """

    def __init__(self, scope: Construct, construct_id: str, stage: StageSettings) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self._values: dict[str, str] = {}

    def publish(self, name: str, value: str) -> None:
        """Write a value that other stacks may read."""
        self._values[name] = value
        ssm.StringParameter(
            self,
            name,
            parameter_name=f"/{self._stage.prefix}/database/{name}",
            description=f"VectorForge ({self._stage.stage}): {name} of the database, for the other stack",
            string_value=value,
        )

    def seen_from(self, scope: Construct, name: str) -> str:
        """Return a value for a construct: itself in this stack, a parameter of the template in any other."""
        if Stack.of(scope) is Stack.of(self):
            return self._values[name]
        Stack.of(scope).add_stack_dependency(Stack.of(self))
        return ssm.StringParameter.value_for_string_parameter(scope, f"/{self._stage.prefix}/database/{name}")


def proxy_id(arn: str) -> str:
    """Return the id of a proxy, which is in the ARNs of its users."""
    return Fn.select(6, Fn.split(":", arn))
