"""Custom resources, which this edition of LocalStack marks as complete without invoking their function.

The function behind a resource gets the event that CloudFormation sends, and answers to a pre-signed URL of
the emulated S3. https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/crpg-ref.html
"""

import json
import time
import uuid
from typing import Any

from localstack import config
from localstack.services.cloudformation.resource_provider import (
    CloudFormationResourceProviderPlugin,
    OperationStatus,
    ProgressEvent,
    ResourceProvider,
)

_BUCKET = "cloudformation-custom-resource-response"
_LONGEST_WAIT_S = 3600
"""CloudFormation's, unless the resource has a ServiceTimeout."""
_POLL_S = 0.2
_PROPERTIES = "_ResourceProperties"


class CustomResourcePlugin(CloudFormationResourceProviderPlugin):  # type: ignore[misc]  # LocalStack is not installed here
    """Registers the provider, also for ``Custom::*``."""

    name = "AWS::CloudFormation::CustomResource"

    def __init__(self) -> None:
        self.factory: type[CustomResourceProvider] | None = None

    def load(self) -> None:
        """Set the factory."""
        self.factory = CustomResourceProvider


class CustomResourceProvider(ResourceProvider):  # type: ignore[misc]  # LocalStack is not installed here
    """Invokes the function behind a resource; the stack fails with it.

    A resource whose physical id changes in an update is not deleted afterwards under its old one.
    """

    TYPE = CustomResourcePlugin.name
    SCHEMA = {"typeName": TYPE, "primaryIdentifier": ["/properties/Id"], "properties": {"Id": {}}}  # noqa: RUF012 - LocalStack's shape

    def create(self, request: Any) -> Any:
        """Invoke the function for Create."""
        return _ask(request, "Create")

    def update(self, request: Any) -> Any:
        """Invoke the function for Update."""
        return _ask(request, "Update")

    def delete(self, request: Any) -> Any:
        """Invoke the function for Delete."""
        return _ask(request, "Delete")


def _ask(request: Any, kind: str) -> Any:
    known = request.previous_state or {}
    properties = known[_PROPERTIES] if kind == "Delete" else as_strings(request.desired_state)
    event = {
        "RequestType": kind,
        "RequestId": str(uuid.uuid4()),
        "StackId": request.stack_id,
        "LogicalResourceId": request.logical_resource_id,
        "ResourceType": request.resource_type,
        "ServiceToken": properties["ServiceToken"],
        "ResourceProperties": properties,
    }
    if kind != "Create":
        event["PhysicalResourceId"] = known["Id"]
    if kind == "Update":
        event["OldResourceProperties"] = known[_PROPERTIES]
    answer = _answer(event, request)
    if answer["Status"] != "SUCCESS":
        text = f"Received response status [{answer['Status']}] from custom resource. "
        return ProgressEvent(
            OperationStatus.FAILED,
            resource_model={},
            message=f"{text}Message returned: {answer.get('Reason', '')}",
        )
    model = {**(answer.get("Data") or {}), "Id": answer["PhysicalResourceId"], _PROPERTIES: properties}
    return ProgressEvent(OperationStatus.SUCCESS, resource_model={} if kind == "Delete" else model)


def as_strings(value: Any) -> Any:
    """Convert numbers and booleans to strings, as CloudFormation passes properties."""
    if isinstance(value, dict):
        return {name: as_strings(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_strings(inner) for inner in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _answer(event: dict[str, Any], request: Any) -> dict[str, Any]:
    """Invoke the function, and read its response from the response URL."""
    s3, functions = _client("s3", request), _client("lambda", request)
    s3.create_bucket(Bucket=_BUCKET)
    place = {"Bucket": _BUCKET, "Key": event["RequestId"]}
    event["ResponseURL"] = s3.generate_presigned_url("put_object", place, ExpiresIn=_LONGEST_WAIT_S)
    invoked = functions.invoke(FunctionName=event["ServiceToken"], Payload=json.dumps(event).encode())
    give_up_at = time.monotonic() + float(event["ResourceProperties"].get("ServiceTimeout", _LONGEST_WAIT_S))
    if "FunctionError" in invoked:  # on AWS the stack would wait until the end
        give_up_at = 0.0
    while True:
        try:
            found: dict[str, Any] = json.loads(s3.get_object(**place)["Body"].read())
        except s3.exceptions.NoSuchKey:
            if time.monotonic() > give_up_at:
                reason = f"The function did not answer: {invoked['Payload'].read().decode(errors='replace')}"
                return {"Status": "FAILED", "Reason": reason}
            time.sleep(_POLL_S)
        else:
            return found


def _client(service: str, request: Any) -> Any:
    """Return a client without retries, and with a timeout for long migrations."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        service,
        endpoint_url=f"http://127.0.0.1:{config.GATEWAY_LISTEN[0].port}",
        region_name=request.region_name,
        aws_access_key_id=request.account_id,
        aws_secret_access_key="test",  # noqa: S106 - any; LocalStack takes the account from the key's id
        config=Config(
            read_timeout=_LONGEST_WAIT_S,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
            signature_version=None if service != "s3" else "s3v4",
        ),
    )
