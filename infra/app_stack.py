"""The functions and what wakes them; a new version of the code is an update of this stack alone."""

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from infra.data_stack import DataStack
from infra.query_api import RestApi
from infra.query_function import QueryFunction
from infra.query_url import QueryUrl
from infra.settings import StageSettings
from infra.tenant_keys import TenantKeys


class AppStack(Stack):
    """Composes; what it is made of defines itself."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, data: DataStack, **kwargs: Any
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        keys = TenantKeys(self, "TenantKeys", stage) if stage.front_door != "function_url" else None
        query = QueryFunction(
            self, "Query", stage=stage, data=data, environment=keys.environment if keys else {}
        )
        if keys is not None:
            RestApi(self, "RestApi", stage=stage, function=query.function, keys=keys)
        if stage.front_door != "rest_api":
            QueryUrl(self, "QueryUrl", stage=stage, function=query.function)
