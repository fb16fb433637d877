"""Bulk loads: a Step Functions Distributed Map over a prefix of the uploads bucket.

Started with ``{"prefix": "acme/handbook/"}``.
docs/operate/ingestion-on-aws.md describes how to start it and to read its report.
"""

import json
from collections.abc import Sequence
from typing import Any

from aws_cdk import Aws, CfnOutput, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.constructs.arns import named_arn
from infra.constructs.buckets import AccessLogs, private_bucket
from infra.constructs.encryption import allow_key
from infra.constructs.retention import log_group
from infra.functions.ingestion import Ingestion
from infra.setting_types import FunctionSettings
from infra.stage_settings import StageSettings

_OBJECTS_A_BATCH = 10
_TOLERATED_PERCENT = 5
"""Percentage of failed objects above which the run stops, such as after a wrong setting."""
_REPORTS = "reports"
_REPORT_DAYS = 90
_LABEL = "Objects"  # part of the ARNs of the map's own executions

_LAMBDA_ERRORS = [
    "Lambda.ServiceException", "Lambda.AWSLambdaException", "Lambda.SdkClientException",
    "Lambda.ClientExecutionTimeoutException", "Lambda.TooManyRequestsException",
]  # fmt: skip
"""https://docs.aws.amazon.com/step-functions/latest/dg/bp-lambda-serviceexception.html"""
_OWN_ERRORS = [
    "DatabaseError", "DatabaseLoginError", "DatabaseUnavailableError", "DeadlineExceededError",
    "EmbeddingError", "EmbeddingModelChangedError", "EmbeddingRateLimitError", "EmbeddingTimeoutError",
    "LimitExceededError", "ObjectStoreError", "QueueError", "SecretsUnavailableError",
]  # fmt: skip
"""Exceptions of ``vectorforge.errors`` after which the batch is retried."""
_KILLED = ["States.Timeout", "Sandbox.Timedout", "Lambda.Unknown", "Runtime.ExitError"]
"""The process timed out or ran out of memory. Its writes are kept."""
_START_S = 60
"""Time for a process to start, in addition to the function's timeout."""


class BulkLoad(Construct):
    """Ingests the objects of the bucket, ten in an invocation, and writes a report.

    Attributes:
        state_machine: The state machine.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        ingestion: Ingestion,
        access_logs: AccessLogs,
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        name = f"{stage.prefix}-bulk-load"
        self._reports_bucket = private_bucket(
            self, "Reports", stage, expires_days=_REPORT_DAYS, access_logs=access_logs
        )
        # Only this prefix keeps the account's resource policy for log delivery small.
        group = log_group(self, "Logs", stage, f"/aws/vendedlogs/states/{name}")
        self.state_machine = sfn.StateMachine(
            self,
            "StateMachine",
            state_machine_name=name,
            state_machine_type=sfn.StateMachineType.STANDARD,
            comment="VectorForge: ingests every object under a prefix of the uploads bucket",
            definition_body=sfn.DefinitionBody.from_string(json.dumps(definition(stage.ingest))),
            definition_substitutions={
                "IngestFunction": ingestion.function.alias.function_arn,
                "Partition": Aws.PARTITION,
                "ReportsBucket": self._reports_bucket.bucket_name,
                "UploadsBucket": ingestion.uploads_bucket.bucket_name,
            },
            role=self._make_role(name, ingestion),
            tracing_enabled=True,
            # Names of states and errors; the data would be names of documents.
            logs=sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL, include_execution_data=False),
        )
        for output, value in {
            "BulkLoad": self.state_machine.state_machine_arn,
            "BulkLoadReports": self._reports_bucket.bucket_name,
        }.items():
            CfnOutput(self, f"{output}Name", value=value).override_logical_id(output)

    def _make_role(self, name: str, ingestion: Ingestion) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "states.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
            description=f"What {name} may do",
        )

        def allow(*actions: str, on: str) -> None:
            role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[on]))
            allow_key(role, self._stage, *actions)

        allow("s3:ListBucket", on=ingestion.uploads_bucket.bucket_arn)
        allow("lambda:InvokeFunction", on=ingestion.function.alias.function_arn)
        allow(
            "s3:PutObject",
            "s3:GetObject",
            "s3:ListMultipartUploadParts",
            "s3:AbortMultipartUpload",
            on=self._reports_bucket.arn_for_objects(f"{_REPORTS}/*"),
        )
        # The map runs batches as executions of the same machine:
        # https://docs.aws.amazon.com/step-functions/latest/dg/iam-policies-eg-dist-map.html
        allow("states:StartExecution", on=named_arn(self, "states", "stateMachine", name))
        executions = named_arn(self, "states", "execution", f"{name}:*")
        allow("states:DescribeExecution", "states:StopExecution", on=executions)
        batches = named_arn(self, "states", "execution", f"{name}/{_LABEL}:*")
        allow("states:RedriveExecution", on=batches)
        return role


def definition(settings: FunctionSettings) -> dict[str, Any]:
    """Return the machine in Amazon States Language, with placeholders for its resources.

    Args:
        settings: Settings of the ingest function, whose concurrency limits the batches.
    """
    return {
        "Comment": "Ingests every object under a prefix of the uploads bucket",
        "StartAt": _LABEL,
        "States": {
            _LABEL: {
                "Type": "Map",
                "Label": _LABEL,
                "End": True,
                "MaxConcurrency": settings.max_concurrency or 0,  # 0: as Lambda allows
                "ToleratedFailurePercentage": _TOLERATED_PERCENT,
                "ItemReader": {
                    "Resource": "arn:${Partition}:states:::s3:listObjectsV2",
                    "Parameters": {"Bucket": "${UploadsBucket}", "Prefix.$": "$.prefix"},
                },
                "ItemBatcher": {"MaxItemsPerBatch": _OBJECTS_A_BATCH},
                "ItemProcessor": {
                    # Express executions end after five minutes; an invocation may take fifteen.
                    "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
                    "StartAt": "Ingest",
                    "States": _batch(settings),
                },
                "ResultWriter": {
                    "Resource": "arn:${Partition}:states:::s3:putObject",
                    "Parameters": {"Bucket": "${ReportsBucket}", "Prefix": _REPORTS},
                },
            }
        },
    }


def _batch(settings: FunctionSettings) -> dict[str, Any]:
    """Return the states of a batch. A batch of which no object was ingested counts as failed."""
    nothing = [
        {"Variable": f"$.{status}", "NumericEquals": 0} for status in ("stored", "unchanged", "pending")
    ]
    failed = {"Variable": "$.failed", "NumericGreaterThan": 0}
    return {
        "Ingest": _ingest(settings),
        "Look": {
            "Type": "Choice",
            "Choices": [{"And": [failed, *nothing], "Next": "NothingIngested"}],
            "Default": "Ingested",
        },
        "Ingested": {"Type": "Succeed"},
        "NothingIngested": {
            "Type": "Fail",
            "Error": "NothingIngested",
            "CausePath": "States.JsonToString($)",  # the report of a batch that fails
        },
    }


def _ingest(settings: FunctionSettings) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "${IngestFunction}",
        "Parameters": {
            "action": "ingest_objects",
            "bucket": "${UploadsBucket}",
            "Items.$": "$.Items",
            "started_at.$": "$$.Execution.StartTime",
        },
        "TimeoutSeconds": settings.timeout_s + _START_S,
        "Retry": [
            _retry(_LAMBDA_ERRORS, first_s=2, factor=2, longest_s=120, attempts=8),
            _retry(_OWN_ERRORS, first_s=10, factor=3, longest_s=300, attempts=5),
            _retry(_KILLED, first_s=30, factor=2, longest_s=60, attempts=2),
        ],
        "Next": "Look",
    }


def _retry(
    errors: Sequence[str], *, first_s: int, factor: int, longest_s: int, attempts: int
) -> dict[str, Any]:
    """Return a retry with exponential backoff and full jitter."""
    return {
        "ErrorEquals": list(errors),
        "IntervalSeconds": first_s,
        "BackoffRate": factor,
        "MaxDelaySeconds": longest_s,
        "MaxAttempts": attempts,
        "JitterStrategy": "FULL",
    }
