"""A state machine that reads the cluster of Aurora that a restore test creates.

AWS Backup restores a cluster without instances. Functions without egress cannot call RDS, so Step Functions
adds an instance, has the migrate function read the data, and deletes the instance. AWS Backup deletes the
cluster.
"""

import json
from typing import Any

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.constructs.arns import named_arn
from infra.constructs.python_function import PythonFunction
from infra.constructs.retention import log_group
from infra.stage_settings import StageSettings

_RESTORED = "awsbackup-restore-*"
_LOOK_EVERY_S, _LOOKS = 60, 45
"""Least patience for a new instance; with the reading within ``RESTORED_HOURS``."""
MAX_ACU = 1
OPERATIONS = ("modifyDBCluster", "createDBInstance", "describeDBInstances", "deleteDBInstance")
"""Calls of RDS; each is a placeholder of the definition."""


class RestoredCluster(Construct):
    """The state machine; its input is ``{"cluster": ARN}``.

    Args:
        migrate: Reads schema and rows.

    Attributes:
        state_machine: The state machine. It fails unless the data was read.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, migrate: PythonFunction
    ) -> None:
        super().__init__(scope, construct_id)
        name = f"{stage.prefix}-restored-cluster"
        group = log_group(self, "Logs", stage, f"/aws/vendedlogs/states/{name}")
        self.state_machine = sfn.StateMachine(
            self,
            "StateMachine",
            state_machine_name=name,
            comment="VectorForge: has the migrate function read a restored cluster",
            definition_body=sfn.DefinitionBody.from_string(json.dumps(definition())),
            definition_substitutions={
                "MigrateFunction": migrate.alias.function_arn,
                **{operation: sdk_arn(operation, Aws.PARTITION) for operation in OPERATIONS},
            },
            role=self._make_role(name, migrate),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL, include_execution_data=False),
        )

    def _make_role(self, name: str, migrate: PythonFunction) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "states.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            ),
            description=f"What {name} may do",
        )
        instance, cluster = (named_arn(self, "rds", kind, _RESTORED) for kind in ("db", "cluster"))
        # RDS checks the creation of an instance against its groups, too.
        groups = [named_arn(self, "rds", kind, "*") for kind in ("og", "pg", "subgrp")]
        for actions, resources in (
            (["rds:ModifyDBCluster"], [cluster, named_arn(self, "rds", "cluster-pg", "*")]),
            (["rds:CreateDBInstance"], [instance, cluster, *groups]),
            (["rds:DeleteDBInstance", "rds:DescribeDBInstances"], [instance]),
            (["lambda:InvokeFunction"], [migrate.alias.function_arn]),
        ):
            role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources))
        return role


def sdk_arn(operation: str, partition: str) -> str:
    """Return the resource of a task that calls RDS."""
    return f"arn:{partition}:states:::aws-sdk:rds:{operation}"


def definition() -> dict[str, Any]:
    """Return the machine in Amazon States Language, with placeholders for its resources.

    Names of the SDK integrations: https://docs.aws.amazon.com/step-functions/latest/dg/supported-services-awssdk.html
    """
    name = {"DbInstanceIdentifier.$": "$.name"}  # an instance may have the name of a cluster
    counted = {"cluster.$": "$.cluster", "name.$": "$.name", "looks.$": "States.MathAdd($.looks, 1)"}
    begun = {
        "cluster.$": "$.cluster",
        "name.$": "States.ArrayGetItem(States.StringSplit($.cluster, ':'), 6)",
        "looks": 0,
    }
    capacity = {
        "DbClusterIdentifier.$": "$.name",
        "ApplyImmediately": True,
        "ServerlessV2ScalingConfiguration": {"MinCapacity": 0.5, "MaxCapacity": MAX_ACU},
    }
    serverless = {
        **name,
        "DbClusterIdentifier.$": "$.name",
        "DbInstanceClass": "db.serverless",
        "Engine": "aurora-postgresql",
        "PubliclyAccessible": False,
    }
    look = _rds("describeDBInstances", name, to="IsAvailable", otherwise="DeleteInstance")
    status = "States.ArrayGetItem($.DbInstances[*].DbInstanceStatus, 0)"
    look |= {"ResultSelector": {"status.$": status}, "ResultPath": "$.instance"}
    return {
        "StartAt": "Begin",
        "States": {
            "Begin": {"Type": "Pass", "Parameters": begun, "Next": "SetCapacity"},
            "SetCapacity": _rds("modifyDBCluster", capacity, to="AddInstance", otherwise="NotRead"),
            "AddInstance": _rds("createDBInstance", serverless, to="Wait", otherwise="DeleteInstance"),
            "Wait": {"Type": "Wait", "Seconds": _LOOK_EVERY_S, "Next": "Count"},
            "Count": {"Type": "Pass", "Parameters": counted, "Next": "Look"},
            "Look": look,
            "IsAvailable": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": "$.instance.status", "StringEquals": "available", "Next": "Read"},
                    {"Variable": "$.looks", "NumericGreaterThanEquals": _LOOKS, "Next": "DeleteInstance"},
                ],
                "Default": "Wait",
            },
            "Read": {
                "Type": "Task",
                "Resource": "${MigrateFunction}",
                "Parameters": {"action": "restored", "instance.$": "$.cluster"},
                "ResultPath": "$.read",
                "Catch": _catch("DeleteInstance"),
                "Next": "DeleteInstance",
            },
            "DeleteInstance": _rds(
                "deleteDBInstance", {**name, "SkipFinalSnapshot": True}, to="WasRead", otherwise="NotRead"
            ),
            "WasRead": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.read", "IsPresent": True, "Next": "Done"}],
                "Default": "NotRead",
            },
            "Done": {"Type": "Succeed"},
            "NotRead": {"Type": "Fail", "Error": "NotRead", "Cause": "The restored cluster was not read."},
        },
    }


def _rds(operation: str, parameters: dict[str, Any], *, to: str, otherwise: str) -> dict[str, Any]:
    """Return a call of RDS, repeated while the cluster or the instance is being changed."""
    return {
        "Type": "Task",
        "Resource": f"${{{operation}}}",
        "Parameters": parameters,
        "ResultPath": None,
        "Retry": [
            {
                "ErrorEquals": ["States.TaskFailed"],
                "IntervalSeconds": 60,
                "BackoffRate": 1.0,
                "MaxAttempts": 5,
            }
        ],
        "Catch": _catch(otherwise),
        "Next": to,
    }


def _catch(state: str) -> list[dict[str, Any]]:
    return [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": state}]
