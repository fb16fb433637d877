"""What outlives deployments of the functions: network, database, the providers' keys."""

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from infra.database import Database
from infra.network import Network
from infra.provider_keys import ProviderKeys
from infra.python_function import Place
from infra.settings import StageSettings

CLIENTS = {
    "query": "Query function: reaches RDS Proxy, AWS services and vendors",
    "log_writer": "Log writer: reaches RDS Proxy and AWS services",
    "ingest": "Ingest function: reaches RDS Proxy, AWS services and vendors",
    "migrate": "Migrate function: reaches PostgreSQL itself and AWS services",
}
"""The functions that log in, and what their security groups are for."""


class DataStack(Stack):
    """Network, database, secret.

    Attributes:
        network: The VPC.
        database: Instance and proxy.
        provider_keys: The secret with the vendors' keys.
        places: Where each function runs, by its folder in ``functions/``.
    """

    def __init__(self, scope: Construct, construct_id: str, *, stage: StageSettings, **kwargs: Any) -> None:
        super().__init__(scope, construct_id, **kwargs)
        self.network = Network(self, "Network", stage)
        self.database = Database(self, "Database", stage=stage, network=self.network)
        self.provider_keys = ProviderKeys(self, "ProviderKeys", stage)
        self.places = {
            function: Place(
                self.network,
                self.database.client_group(
                    f"{function.title().replace('_', '')}Group", description, direct=function == "migrate"
                ),
            )
            for function, description in CLIENTS.items()
        }
