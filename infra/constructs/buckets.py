"""Private S3 buckets with access logs."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.encryption import customer_key
from infra.constructs.retention import removal
from infra.stage_settings import StageSettings

_ABORT_AFTER = Duration.days(1)
"""Parts of an abandoned upload are invisible, and billed."""


class AccessLogs(Construct):
    """S3's server access logs of the other buckets; delivery is free, storage is billed.

    Attributes:
        bucket: The bucket, with one prefix for each notification.
    """

    def __init__(self, scope: Construct, construct_id: str, stage: StageSettings) -> None:
        super().__init__(scope, construct_id)
        # Else CDK lets S3 in with an ACL, which the bucket does not have.
        self.node.set_context("@aws-cdk/aws-s3:serverAccessLogsUseBucketPolicy", True)
        self.bucket = private_bucket(self, "Bucket", stage, expires_days=stage.log_retention_days)


def private_bucket(
    scope: Construct,
    construct_id: str,
    stage: StageSettings,
    *,
    expires_days: int | None,
    access_logs: AccessLogs | None = None,
    cors: Sequence[s3.CorsRule] | None = None,
) -> s3.Bucket:
    """Create a bucket. CloudFormation names it, so that a stack can be recreated next to a retained bucket.

    Without versions: what a tenant deletes or a rule expires has to be gone.

    Args:
        scope: Parent construct.
        construct_id: Id; also the prefix in the access logs.
        stage: Says whether it outlives its stack.
        expires_days: Days after which an object is deleted; None: never.
        access_logs: Destination of access logs.
        cors: Rules for web pages.
    """
    # S3 delivers access logs only to a bucket with a key of its own.
    key = customer_key(scope, stage) if access_logs else None
    return s3.Bucket(
        scope,
        construct_id,
        encryption=s3.BucketEncryption.KMS if key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=key,
        bucket_key_enabled=True if key else None,  # a call of KMS for many objects
        enforce_ssl=True,
        minimum_tls_version=1.2,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        versioned=False,
        server_access_logs_bucket=access_logs.bucket if access_logs else None,
        server_access_logs_prefix=f"{construct_id.lower()}/" if access_logs else None,
        cors=cors,
        lifecycle_rules=[
            s3.LifecycleRule(
                id="expire",
                abort_incomplete_multipart_upload_after=_ABORT_AFTER,
                expiration=None if expires_days is None else Duration.days(expires_days),
            )
        ],
        removal_policy=removal(stage),
    )
