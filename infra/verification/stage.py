"""A deployed stage as a caller and an operator see it: its API, its keys, its AWS services."""

import json
import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import httpx2

from functions.probe.handler import ProbedFunction
from infra.constructs.python_function import ALIAS
from infra.deployment.cdk_command import DeploymentError
from infra.doctor.aws import AwsClients
from infra.emulator.deployment.emulated_account import EmulatedAccount, gateway_key_ids, gateway_keys
from infra.stage_settings import StageSettings

TOKENS: Final = "VERIFY_TOKENS"
"""Variable with a valid token of one or two tenants, for stages with tokens: {"acme": "eyJ..."}."""
_TIMEOUT_S = 60.0


class DeployedStage:
    """A stage in the account of boto3's credentials, or in LocalStack if ``AWS_ENDPOINT_URL`` is set.

    Args:
        settings: Of the stage.
        region: AWS region.
    """

    def __init__(self, settings: StageSettings, region: str) -> None:
        self.settings = settings
        self.region = region
        self.endpoint_url = os.environ.get("AWS_ENDPOINT_URL")
        self._clients = AwsClients(region)

    @property
    def is_emulated(self) -> bool:
        """True for LocalStack, in which some points cannot be shown."""
        return self.endpoint_url is not None

    def aws(self, service: str) -> Any:
        """Return boto3's client of a service."""
        return self._clients.get(service)

    def name(self, function: str) -> str:
        """Return the name of a function of ``functions/``."""
        return f"{self.settings.prefix}-{function.replace('_', '-')}"

    def resources(self, kind: str) -> list[str]:
        """Return the ids of the app stack's resources of a type."""
        pages = self.aws("cloudformation").get_paginator("list_stack_resources")
        found = pages.paginate(StackName=f"VectorForge-{self.settings.stage}-App").search(
            "StackResourceSummaries[]"
        )
        return [one["PhysicalResourceId"] for one in found if one["ResourceType"] == kind]

    def published(self, function: str) -> str:
        """Return the version of a function that serves."""
        found = self.aws("lambda").get_alias(FunctionName=self.name(function), Name=ALIAS)
        version: str = found["FunctionVersion"]
        return version

    def variables(self, function: str) -> Mapping[str, str]:
        """Return the environment of the version that serves; LocalStack knows no alias here."""
        found = self.aws("lambda").get_function_configuration(
            FunctionName=self.name(function), Qualifier=self.published(function)
        )
        variables: dict[str, str] = found.get("Environment", {}).get("Variables", {})
        return variables

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """Outputs of the app stack by name.

        Raises:
            DeploymentError: The stack does not exist.
        """
        found = self.aws("cloudformation").describe_stacks(
            StackName=f"VectorForge-{self.settings.stage}-App"
        )["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in found[0].get("Outputs", ())}

    @cached_property
    def api_url(self) -> str:
        """URL of the REST API without a slash at its end.

        Raises:
            DeploymentError: The stage has no REST API.
        """
        if self.endpoint_url is not None:
            return EmulatedAccount(self.endpoint_url).look(self.settings.stage).url
        if "ApiUrl" not in self.outputs:
            raise DeploymentError(f"The stage {self.settings.stage} has no REST API, which this verifies.")
        return self.outputs["ApiUrl"].rstrip("/")

    @cached_property
    def key_ids(self) -> Mapping[str, str]:
        """Ids of API Gateway's keys by tenant.

        Raises:
            DeploymentError: The stage admits callers by tokens.
        """
        if not self.settings.has_gateway_keys:
            raise DeploymentError(f"The stage {self.settings.stage} has no keys of API Gateway.")
        return gateway_key_ids(self.aws, f"{self.settings.prefix}/gateway-keys")

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """API Gateway's keys by tenant; secrets, in no report."""
        return gateway_keys(self.aws, self.key_ids)

    @cached_property
    def credentials(self) -> Mapping[str, Mapping[str, str]]:
        """Headers of a caller by tenant; secrets, in no report.

        Raises:
            DeploymentError: The stage admits callers by tokens, and there is none.
        """
        if self.settings.tokens is None:
            return {tenant: {"x-api-key": key} for tenant, key in self.keys.items()}
        try:
            tokens = dict(json.loads(os.environ.get(TOKENS, "{}")))
        except (ValueError, TypeError):
            tokens = {}
        if not tokens:
            raise DeploymentError(
                f'The stage needs tokens in {TOKENS}, a JSON object {{"<tenant>": "<token>"}}.'
            )
        return {tenant: {"authorization": f"Bearer {token}"} for tenant, token in tokens.items()}

    @property
    def query_function(self) -> ProbedFunction:
        """The query function, invoked past the front doors as the first tenant.

        ``/health?deep=1`` requires a credential, and API Gateway passes the id of a key on only for paths
        that require one:
        https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-mapping-template-reference.html
        """
        key_id = next(iter(self.key_ids.values()))
        return ProbedFunction(f"{self.name('query')}:{ALIAS}", key_id, self.aws("lambda"))

    def http(self, *, key: str | None = None, tenant: str | None = None) -> httpx2.Client:
        """Return a client of the REST API, to be used as a context manager.

        Args:
            key: Sent as ``x-api-key``; None: the tenant's credential, "": none.
            tenant: One of ``credentials``; default: the first.
        """
        headers = {"x-api-key": key} if key else {}
        if key is None:
            headers |= self.credentials[tenant or next(iter(self.credentials))]
        url = self.api_url
        if self.is_emulated:  # not every resolver finds names below localhost (RFC 6761)
            named = urlsplit(url)
            headers["host"] = named.netloc
            url = urlunsplit(named._replace(netloc=f"127.0.0.1:{named.port}"))
        return httpx2.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S)

    def close(self) -> None:
        """Close the connections to AWS."""
        self._clients.close()
