"""The functions and what wakes them; a new version of the code is an update of this stack alone."""

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from infra.alarms import Alarms
from infra.bulk_load import BulkLoad
from infra.dashboard import Dashboard
from infra.data_stack import DataStack
from infra.ingestion import Ingestion
from infra.migration import Migration
from infra.private_bucket import AccessLogs
from infra.query_api import RestApi
from infra.query_function import QueryFunction
from infra.query_log import QueryLog
from infra.query_url import QueryUrl
from infra.settings import StageSettings
from infra.tenant_keys import TenantKeys


class AppStack(Stack):
    """Composes; what it is made of defines itself."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, data: DataStack, **kwargs: Any
    ) -> None:
        super().__init__(scope, construct_id, **kwargs)
        access_logs = AccessLogs(self, "AccessLogs", stage)
        self.migration = Migration(self, "Migration", stage=stage, data=data)
        self.query_log = QueryLog(self, "QueryLog", stage=stage, data=data, access_logs=access_logs)
        self.ingestion = Ingestion(self, "Ingestion", stage=stage, data=data, access_logs=access_logs)
        self.bulk_load = BulkLoad(
            self, "BulkLoad", stage=stage, ingestion=self.ingestion, access_logs=access_logs
        )
        keys = TenantKeys(self, "TenantKeys", stage) if stage.front_door != "function_url" else None
        self.query = QueryFunction(
            self,
            "Query",
            stage=stage,
            data=data,
            query_log=self.query_log,
            ingestion=self.ingestion,
            environment=keys.environment if keys else {},
        )
        if keys:
            keys.allow_reading(self.query.function)
        self.rest_api = (
            RestApi(self, "RestApi", stage=stage, function=self.query.function, keys=keys) if keys else None
        )
        self.query_url = (
            QueryUrl(self, "QueryUrl", stage=stage, function=self.query.function)
            if stage.front_door != "rest_api"
            else None
        )
        self.migration.before(self.query_log.writer, self.ingestion.function, self.query.function)
        self.alarms = Alarms(
            self,
            "Alarms",
            stage=stage,
            query=self.query.function,
            ingest=self.ingestion.function,
            bulk_load=self.bulk_load,
        )
        self.query.roll_back_on(self.alarms.deployment_alarms)
        Dashboard(self, "Dashboard", stage=stage, alarms=self.alarms)
