"""The data stack, which outlives deployments of the functions."""

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from infra.constructs.python_function import Place
from infra.data.backup import DatabaseBackup
from infra.data.database import Database
from infra.data.network import Network
from infra.data.provider_keys import ProviderKeys
from infra.data.restore_test import RestoreTest
from infra.stage_settings import StageSettings

CLIENTS = {
    "query": "Query function: reaches {database}, AWS services and vendors",
    "log_writer": "Log writer: reaches {database} and AWS services",
    "ingest": "Ingest function: reaches {database}, AWS services and vendors",
    "migrate": "Migrate function: reaches PostgreSQL itself and AWS services",
}
"""Functions that log in to the database, with the purpose of their security groups."""


class DataStack(Stack):
    """Network, database, secret.

    Attributes:
        network: The VPC.
        database: Instance, and its proxy if the stage has one.
        provider_keys: The secret with the vendors' keys.
        places: Network of each function by its folder in ``functions/``.
    """

    def __init__(self, scope: Construct, construct_id: str, *, stage: StageSettings, **kwargs: Any) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self.network = Network(self, "Network", stage)
        self.database = Database(self, "Database", stage=stage, network=self.network)
        if stage.backup is not None:
            vault = DatabaseBackup(self, "Backup", stage.backup, stage.prefix, self.database).vault
            if stage.backup.restore_test:
                RestoreTest(self, "RestoreTest", stage.backup, stage.prefix, vault, self.database)
        self.provider_keys = ProviderKeys(self, "ProviderKeys", stage)
        reached = "RDS Proxy" if stage.database.proxy else "PostgreSQL"
        self.places = {
            function: Place(
                self.network.vpc,
                self.network.function_subnets,
                self.database.client_group(
                    f"{function.title().replace('_', '')}Group",
                    description.format(database=reached),
                    direct=function == "migrate",
                ),
            )
            for function, description in CLIENTS.items()
        }
