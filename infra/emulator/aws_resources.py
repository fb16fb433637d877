"""Queues, buckets and secret of a deployment in an emulator, created through ``localstack-client``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from vectorforge.errors import ConfigurationError

MAX_RECEIVE_COUNT = 5
"""Deliveries of a message before it is moved to the dead-letter queue."""

_RETENTION_S = 14 * 24 * 3600


@dataclass(frozen=True, slots=True)
class AwsResources:
    """Queues, buckets and secret of a deployment."""

    query_log_queue_url: str
    query_log_dead_letter_queue_url: str
    ingestion_queue_url: str
    ingestion_dead_letter_queue_url: str
    uploads_bucket: str
    overflow_bucket: str
    provider_secret_id: str


def create_resources(
    keys: Mapping[str, SecretStr], *, log_writer_timeout_s: int, ingest_timeout_s: int
) -> AwsResources:
    """Create or update the resources in the emulator at ``AWS_ENDPOINT_URL``.

    Args:
        keys: Providers' keys by the name of their setting; the content of the secret.
        log_writer_timeout_s: Timeout of the function behind the queue: messages stay out of sight six times
            as long (https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html).
        ingest_timeout_s: Timeout of the ingest function.

    Raises:
        ConfigurationError: localstack-client is not installed, or a call failed.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        sqs, s3 = _client("sqs"), _client("s3")
        query_log, query_log_dead = _queue_pair(sqs, "vectorforge-query-log", 6 * log_writer_timeout_s)
        ingestion, ingestion_dead = _queue_pair(sqs, "vectorforge-ingestion", 6 * ingest_timeout_s)
        for bucket in ("vectorforge-uploads", "vectorforge-query-log-overflow"):
            s3.create_bucket(Bucket=bucket)
        _notify(s3, "vectorforge-uploads", _arn(sqs, ingestion))
        secret_id = _secret(_client("secretsmanager"), "vectorforge/providers", keys)
    except (BotoCoreError, ClientError) as exc:
        raise ConfigurationError(f"The emulator of AWS services fails: {type(exc).__name__}: {exc}") from exc
    return AwsResources(
        query_log_queue_url=query_log,
        query_log_dead_letter_queue_url=query_log_dead,
        ingestion_queue_url=ingestion,
        ingestion_dead_letter_queue_url=ingestion_dead,
        uploads_bucket="vectorforge-uploads",
        overflow_bucket="vectorforge-query-log-overflow",
        provider_secret_id=secret_id,
    )


def upload(bucket: str, files: Mapping[str, Path]) -> None:
    """Put files into a bucket, by key."""
    s3 = _client("s3")
    for key, file in files.items():
        s3.put_object(Bucket=bucket, Key=key, Body=file.read_bytes())


def _client(service: str) -> Any:
    try:
        from localstack_client.session import Session
    except ModuleNotFoundError as exc:
        raise ConfigurationError("Making queues needs localstack-client: uv sync --group dev") from exc
    return Session().client(service)


def _queue_pair(sqs: Any, name: str, visibility_timeout_s: int) -> tuple[str, str]:
    """Return the URLs of a queue and of its dead-letter queue."""
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    redrive = {"deadLetterTargetArn": _arn(sqs, dead), "maxReceiveCount": str(MAX_RECEIVE_COUNT)}
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    # Not with create_queue, which refuses a queue that is there with other attributes.
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"MessageRetentionPeriod": str(_RETENTION_S)})
    sqs.set_queue_attributes(
        QueueUrl=url,
        Attributes={
            "VisibilityTimeout": str(visibility_timeout_s),
            "MessageRetentionPeriod": str(_RETENTION_S),
            "RedrivePolicy": json.dumps(redrive),
        },
    )
    return url, dead


def _arn(sqs: Any, queue_url: str) -> str:
    found = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    arn: str = found["Attributes"]["QueueArn"]
    return arn


def _notify(s3: Any, bucket: str, queue_arn: str) -> None:
    """Let S3 send a message to the queue for each new object."""
    queue = {"QueueArn": queue_arn, "Events": ["s3:ObjectCreated:*"]}
    s3.put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [queue]}
    )


def _secret(secrets_manager: Any, name: str, keys: Mapping[str, SecretStr]) -> str:
    content = json.dumps({setting: key.get_secret_value() for setting, key in keys.items()})
    try:
        secrets_manager.create_secret(Name=name, SecretString=content)
    except secrets_manager.exceptions.ResourceExistsException:
        secrets_manager.put_secret_value(SecretId=name, SecretString=content)
    return name
