"""The query function: answers HTTP requests of the front doors, streamed."""

import json
from collections.abc import Mapping, Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.bedrock import allow_models
from infra.bedrock_models import ANSWERS, EMBEDDINGS
from infra.canary import Canary
from infra.data_stack import DataStack
from infra.database import APP_ROLE
from infra.ingestion import Ingestion
from infra.python_function import PythonFunction
from infra.query_log import QueryLog
from infra.settings import StageSettings

_CONNECTIONS = 2
"""Of one process, which answers one question at a time."""


class QueryFunction(Construct):
    """Reads, searches and answers; streams through the runtime of ``vectorforge.runtime``.

    Args:
        scope: Of the construct.
        construct_id: Of the construct.
        stage: The stage's settings.
        data: Where it logs in, and where the vendors' keys are.
        query_log: Where it sends a record of each question.
        ingestion: Where it announces jobs, and signs uploads.
        environment: Where it finds out who its callers are.

    Attributes:
        function: The function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        data: DataStack,
        query_log: QueryLog,
        ingestion: Ingestion,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = PythonFunction(
            self,
            "Function",
            function="query",
            description=f"VectorForge ({stage.stage}): answers questions, streamed",
            stage=stage,
            settings=stage.query,
            place=data.places["query"],
            start=stage.start,
            environment={
                "AWS_LAMBDA_EXEC_WRAPPER": "/var/task/vectorforge/runtime/exec_wrapper",
                "VECTORFORGE_RESPONSE_MODE": "stream",
                "VECTORFORGE_DATABASE_URL": data.database.proxy_url(APP_ROLE),
                "VECTORFORGE_DATABASE_AUTH": "iam",
                "VECTORFORGE_DATABASE_POOL_SIZE": str(_CONNECTIONS),
                "VECTORFORGE_IAM_TENANTS": json.dumps(dict(stage.iam_tenants)),
                **_cors_origins(stage),
                **environment,
                **query_log.environment,
                **ingestion.environment,
                **data.provider_keys.environment,
            },
            reserved_concurrent_executions=stage.query.max_concurrency,
            # An automatic update of the managed runtime, also of published versions, could start its process
            # in a way that the wrapper does not know.
            runtime_management_mode=lambda_.RuntimeManagementMode.FUNCTION_UPDATE,
        )
        data.database.allow_login(self.function, APP_ROLE)
        data.provider_keys.allow_reading(self.function)
        allow_models(self.function, stage, ANSWERS, EMBEDDINGS)
        query_log.allow_sending(self.function)
        ingestion.allow_announcing(self.function)
        ingestion.allow_signing_uploads(self.function)
        self._canary = Canary(self, "Canary", stage=stage, function=self.function) if stage.canary else None

    def roll_back_on(self, alarms: Sequence[cloudwatch.IAlarm]) -> None:
        """Let alarms stop a new version on its way in; without ``StageSettings.canary`` there is no such way.

        Args:
            alarms: They may name the function, but not refer to its alias or to what invokes it: those wait
                for the deployment group, which waits for the alarms.
        """
        if self._canary is not None:
            self._canary.watch(alarms)


def _cors_origins(stage: StageSettings) -> dict[str, str]:
    return {"VECTORFORGE_CORS_ORIGINS": ",".join(stage.cors_origins)} if stage.cors_origins else {}
