"""Lets API Gateway take keys from ``Authorization: Bearer``, too, as clients of OpenAI and MCP send them."""

from typing import cast

from aws_cdk import Duration
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.python_function import PythonFunction
from infra.settings import FunctionSettings, StageSettings


class KeyAuthorizer(Construct):
    """A function that tells API Gateway which key was sent; API Gateway checks it against the usage plans.

    Its answers are not kept. A kept answer is found again by the header that the authorizer names, and that
    header then has to be there (https://docs.aws.amazon.com/apigateway/latest/developerguide/configure-api-gateway-lambda-authorization.html):
    callers send one of two.

    Attributes:
        authorizer: For the methods that want a key.
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
