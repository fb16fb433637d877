"""LocalStack's account: preparation for ``cdk deploy``, and the deployed parts."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from infra.emulator.aws_emulator import ACCOUNT_ID, REGION
from infra.emulator.deployment.database import OWNER
from infra.stage_settings import StageSettings
from vectorforge.errors import ConfigurationError

_QUALIFIER = "hnb659fds"
"""CDK's own, https://docs.aws.amazon.com/cdk/v2/guide/bootstrapping-customizing.html."""
_BOOTSTRAP_VERSION = "30"
_STACK = "AWS::CloudFormation::Stack"
_BEGINNINGS = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS")
_OWNER_SECRET = "vectorforge/database-owner"  # noqa: S105 - its name


def gateway_key_ids(client: Callable[[str], Any], secret_id: str) -> dict[str, str]:
    """Return the ids of API Gateway's keys by tenant.

    Args:
        client: Returns boto3's client of a service.
        secret_id: Secret with the tenants by the id of their key.
    """
    found = client("secretsmanager").get_secret_value(SecretId=secret_id)
    return {tenant: key_id for key_id, tenant in json.loads(found["SecretString"]).items()}


def gateway_keys(client: Callable[[str], Any], key_ids: Mapping[str, str]) -> dict[str, str]:
    """Return API Gateway's keys by tenant, given their ids; secrets, for no report."""
    gateway = client("apigateway")
    return {
        tenant: gateway.get_api_key(apiKey=key_id, includeValue=True)["value"]
        for tenant, key_id in key_ids.items()
    }


def check_has_keys(stage: StageSettings) -> None:
    """Check that a stage's callers have keys of API Gateway: no emulator has CloudFront or checks tokens.

    Raises:
        ConfigurationError: They have none.
    """
    if not stage.has_gateway_keys:
        raise ConfigurationError(
            f"The stage {stage.stage!r} has no API keys. Deploy one here with the REST API, and without "
            "user_pool and token_issuer."
        )


@dataclass(frozen=True, slots=True)
class Deployed:
    """Addresses and names of a deployment's parts."""

    endpoint_url: str
    """URL of the AWS services."""
    url: str
    """URL of the API with the stage, without a slash at the end."""
    api_keys: Mapping[str, str]
    """Keys by tenant."""
    uploads_bucket: str
    query_log_queue_url: str
    query_log_dead_letter_queue_url: str
    ingestion_queue_url: str
    ingestion_dead_letter_queue_url: str
    provider_secret_id: str


class EmulatedAccount:
    """Account of a local emulator, which accepts any credentials.

    Args:
        endpoint_url: URL of LocalStack.
    """

    def __init__(self, endpoint_url: str) -> None:
        self.endpoint_url = endpoint_url

    def client(self, service: str) -> Any:
        """Return a client of boto3 for this account."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - any will do
        )

    def bootstrap(self) -> None:
        """Create the assets bucket and the version parameter of ``cdk bootstrap``."""
        self.client("s3").create_bucket(Bucket=f"cdk-{_QUALIFIER}-assets-{ACCOUNT_ID}-{REGION}")
        self.client("ssm").put_parameter(
            Name=f"/cdk-bootstrap/{_QUALIFIER}/version",
            Value=_BOOTSTRAP_VERSION,
            Type="String",
            Overwrite=True,
        )

    def owner_secret(self) -> str:
        """Create a secret as RDS does for its master user (any password works). Return its ARN."""
        secrets = self.client("secretsmanager")
        try:
            made = secrets.create_secret(
                Name=_OWNER_SECRET, SecretString=json.dumps({"username": OWNER, "password": "any"})
            )
        except secrets.exceptions.ResourceExistsException:
            made = secrets.describe_secret(SecretId=_OWNER_SECRET)
        arn: str = made["ARN"]
        return arn

    def store_keys(self, secret_id: str, keys: Mapping[str, SecretStr]) -> None:
        """Store providers' keys in the deployment's secret by the name of their setting, if there are any."""
        if keys:
            content = json.dumps({setting: key.get_secret_value() for setting, key in keys.items()})
            self.client("secretsmanager").put_secret_value(SecretId=secret_id, SecretString=content)

    def check_stacks(self, stacks: Sequence[str]) -> None:
        """Check that nothing failed: LocalStack reports failed updates as complete.

        Args:
            stacks: Names.

        Raises:
            ConfigurationError: The last creation or update of a stack failed.
        """
        pages = self.client("cloudformation").get_paginator("describe_stack_events")
        for stack in stacks:
            reasons: dict[str, str] = {}
            newest_first = (
                event for page in pages.paginate(StackName=stack) for event in page["StackEvents"]
            )
            for event in newest_first:
                if event["ResourceType"] == _STACK and event["ResourceStatus"] in _BEGINNINGS:
                    break
                if event["ResourceStatus"].endswith("_FAILED"):
                    reasons[event["LogicalResourceId"]] = event.get("ResourceStatusReason") or ""
            if reasons:  # those without one failed with another
                name = max(reasons, key=lambda one: len(reasons[one]))
                raise ConfigurationError(f"{stack}: {name} failed: {reasons[name]}")

    def look(self, stage: str) -> Deployed:
        """Find the parts of a stage's deployment by the settings of its query function.

        Raises:
            ConfigurationError: They do not exist.
        """
        from botocore.exceptions import ClientError

        name, functions = f"vectorforge-{stage}-query", self.client("lambda")
        try:
            version = functions.get_alias(FunctionName=name, Name="live")["FunctionVersion"]
            # LocalStack knows no alias here.
            found = functions.get_function_configuration(FunctionName=name, Qualifier=version)
        except ClientError as exc:
            raise ConfigurationError(f"The function {name} does not exist; deploy first.") from exc
        told = found["Environment"]["Variables"]
        query_log, ingestion = (
            told["VECTORFORGE_QUERY_LOG_QUEUE_URL"],
            told["VECTORFORGE_INGESTION_QUEUE_URL"],
        )
        return Deployed(
            endpoint_url=self.endpoint_url,
            url=self._api_url(stage),
            api_keys=gateway_keys(
                self.client, gateway_key_ids(self.client, told["VECTORFORGE_GATEWAY_KEY_SECRET_ID"])
            ),
            uploads_bucket=told["VECTORFORGE_UPLOADS_BUCKET"],
            query_log_queue_url=query_log,
            query_log_dead_letter_queue_url=self._dead_letter_queue(query_log),
            ingestion_queue_url=ingestion,
            ingestion_dead_letter_queue_url=self._dead_letter_queue(ingestion),
            provider_secret_id=told["VECTORFORGE_PROVIDER_SECRET_ID"],
        )

    def _api_url(self, stage: str) -> str:
        """Return the URL by host name: links of the API would lack a path before the stage.

        Browsers and curl find every name below localhost on this machine (RFC 6761).
        """
        apis = self.client("apigateway").get_rest_apis()["items"]
        api_id = next((api["id"] for api in apis if api["name"] == f"vectorforge-{stage}"), None)
        if api_id is None:
            raise ConfigurationError(f"The REST API vectorforge-{stage} does not exist; deploy first.")
        port = self.endpoint_url.rpartition(":")[2]
        return f"http://{api_id}.execute-api.localhost:{port}/{stage}"

    def _dead_letter_queue(self, queue_url: str) -> str:
        sqs = self.client("sqs")
        attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["RedrivePolicy"])
        arn = json.loads(attributes["Attributes"]["RedrivePolicy"])["deadLetterTargetArn"]
        url: str = sqs.get_queue_url(QueueName=arn.rpartition(":")[2])["QueueUrl"]
        return url
