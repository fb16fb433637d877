"""Ingestion: the buckets of uploads and originals, the queue that triggers the function, and a poll."""

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.connection_budget import INGEST_CONNECTIONS
from infra.constructs.bedrock import EMBEDDINGS, allow_contexts, allow_models
from infra.constructs.buckets import AccessLogs, private_bucket
from infra.constructs.message_queue import MessageQueue
from infra.constructs.python_function import PythonFunction
from infra.data.data_stack import DataStack
from infra.data.database import APP_ROLE
from infra.stage_settings import StageSettings

_LOOK_EVERY = Duration.minutes(5)
_BATCH = 1
"""A job may take the whole invocation."""


class Ingestion(Construct):
    """Runs ingestion jobs of the API and of uploads.

    Attributes:
        uploads_bucket: An object ``<tenant>/<collection>/<path>`` becomes a document.
        function: The ingest function.
        environment: Variables of functions that announce jobs and sign uploads.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        data: DataStack,
        access_logs: AccessLogs,
    ) -> None:
        super().__init__(scope, construct_id)
        self._messages = MessageQueue(self, "Jobs", stage=stage, name="ingestion", consumer=stage.ingest)
        self.uploads_bucket = private_bucket(
            self,
            "Uploads",
            stage,
            expires_days=stage.uploads_kept_days,
            access_logs=access_logs,
            cors=_cors(stage),
        )
        _notify(self.uploads_bucket, self._messages.queue)
        CfnOutput(self, "UploadsName", value=self.uploads_bucket.bucket_name).override_logical_id(
            "UploadsBucket"
        )
        # The files of documents, until their documents are deleted.
        self._originals_bucket = private_bucket(
            self, "Originals", stage, expires_days=None, access_logs=access_logs
        )
        self.environment = {
            "VECTORFORGE_INGESTION_QUEUE_URL": self._messages.queue.queue_url,
            "VECTORFORGE_UPLOADS_BUCKET": self.uploads_bucket.bucket_name,
            "VECTORFORGE_ORIGINALS_BUCKET": self._originals_bucket.bucket_name,
        }
        self.function = self._make_function(stage, data)
        self._messages.feed(self.function, batch_size=_BATCH)
        self._look(stage)
        self._tell_how_to_upload(stage)

    def allow_announcing(self, function: PythonFunction) -> None:
        """Allow a function to enqueue jobs."""
        self._messages.allow_sending(function)

    def allow_signing_uploads(self, function: PythonFunction) -> None:
        """Allow a function to sign uploads: the holder of a signed URL writes one object."""
        function.allow("s3:PutObject", on=[self.uploads_bucket.arn_for_objects("*")])

    def allow_linking_originals(self, function: PythonFunction) -> None:
        """Allow a function to read originals, and so to sign links to them."""
        function.allow("s3:GetObject", on=[self._originals_bucket.arn_for_objects("*")])
        # Else S3 answers 403 for one that is missing. Reads have no prefix for a condition.
        function.allow("s3:ListBucket", on=[self._originals_bucket.bucket_arn])

    def _make_function(self, stage: StageSettings, data: DataStack) -> PythonFunction:
        function = PythonFunction(
            self,
            "Ingest",
            function="ingest",
            description="VectorForge: documents out of jobs and uploads into passages and vectors",
            stage=stage,
            settings=stage.ingest,
            place=data.places["ingest"],
            environment={
                "VECTORFORGE_DATABASE_AUTH": "iam",
                "VECTORFORGE_DATABASE_URL": data.database.client_url(self, APP_ROLE),
                "VECTORFORGE_DATABASE_POOL_SIZE": str(INGEST_CONNECTIONS),
                "VECTORFORGE_LOG_RETENTION_DAYS": str(stage.log_retention_days),
                **data.provider_keys.environment,
                **self.environment,
            },
            # It wakes itself through its queue while a job waits: more than the 16 hops after which Lambda
            # takes that for a loop. The jobs are in the database, and end there.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )
        data.database.allow_login(function, APP_ROLE)
        data.provider_keys.allow_reading(function)
        allow_models(function, stage, EMBEDDINGS)
        allow_contexts(function, stage)
        self._messages.allow_sending(function)  # jobs that it cannot finish are announced again
        function.allow("s3:GetObject", on=[self.uploads_bucket.arn_for_objects("*")])
        # An erasure deletes what was uploaded.
        function.allow("s3:DeleteObject", on=[self.uploads_bucket.arn_for_objects("*")])
        # Without it S3 answers 403, not 404, for an object that is gone.
        function.allow("s3:ListBucket", on=[self.uploads_bucket.bucket_arn])
        for action in ("s3:PutObject", "s3:DeleteObject"):
            function.allow(action, on=[self._originals_bucket.arn_for_objects("*")])
        function.allow("s3:ListBucket", on=[self._originals_bucket.bucket_arn])  # to erase a tenant's
        return function

    def _tell_how_to_upload(self, stage: StageSettings) -> None:
        stack, bucket = Stack.of(self), self.uploads_bucket.bucket_name
        CfnOutput(
            stack,
            "UploadExample",
            description=f"Adds a document to the collection handbook of the tenant {stage.tenants[0]}",
            value=(
                f"aws s3 cp --region {stack.region} README.md "
                f"s3://{bucket}/{stage.tenants[0]}/handbook/README.md"
            ),
        )

    def _look(self, stage: StageSettings) -> None:
        """Poll for jobs without a message. A failed poll is not retried; the next one finds the jobs."""
        alias = self.function.alias
        alias.configure_async_invoke(retry_attempts=0, max_event_age=_LOOK_EVERY)
        events.Rule(
            self,
            "Look",
            rule_name=f"{stage.prefix}-look",
            description="VectorForge: has the ingest function look for jobs that have no message",
            schedule=events.Schedule.rate(_LOOK_EVERY),
            targets=[targets.LambdaFunction(alias, retry_attempts=0, max_event_age=_LOOK_EVERY)],
        )


def _cors(stage: StageSettings) -> list[s3.CorsRule] | None:
    if not stage.upload_origins:
        return None
    return [
        s3.CorsRule(
            allowed_methods=[s3.HttpMethods.POST],  # of a signed form
            allowed_origins=list(stage.upload_origins),
            exposed_headers=["ETag"],
            max_age=3600,
        )
    ]


def _notify(bucket: s3.Bucket, queue: sqs.Queue) -> None:
    """Send a message for every object written.

    By the bucket's own property: CDK's way (``add_event_notification``) deploys a function of its own for it.
    S3 sends a test message when it is configured with the queue, so the queue must admit it before. So its
    policy cannot name the bucket; it names the account whose buckets may send.
    """
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            sid="UploadsOfThisAccount",
            principals=[iam.ServicePrincipal("s3.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[queue.queue_arn],
            conditions={"StringEquals": {"aws:SourceAccount": queue.stack.account}},
        )
    )
    resource = bucket.node.default_child
    if not isinstance(resource, s3.CfnBucket):
        raise TypeError("A bucket is made of one resource.")
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        queue_configurations=[
            s3.CfnBucket.QueueConfigurationProperty(event="s3:ObjectCreated:*", queue=queue.queue_arn)
        ]
    )
    resource.node.add_dependency(queue.node.find_child("Policy"))
