"""Encryption with a customer managed key, ``StageSettings.kms_key_arn``, in place of the keys of AWS.

The key's own policy must admit the services that encrypt for the account, such as CloudWatch Logs:
docs/operate/deploy.md#customer-managed-key.
"""

from typing import cast

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.stage_settings import StageSettings

_ID = "CustomerKey"
_DECRYPT = "kms:Decrypt"
_WRITES = (_DECRYPT, "kms:GenerateDataKey")
_NEEDED = {
    "s3:GetObject": (_DECRYPT,),
    "s3:PutObject": _WRITES,
    "secretsmanager:GetSecretValue": (_DECRYPT,),
    "sns:Publish": _WRITES,
    "sqs:ReceiveMessage": (_DECRYPT,),
    "sqs:SendMessage": _WRITES,
}
"""Actions on encrypted resources -> the actions of KMS that their callers need.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-key-management.html
"""


def customer_key(scope: Construct, stage: StageSettings) -> kms.IKey | None:
    """Return the stage's customer managed key, or None: the keys of AWS encrypt."""
    if stage.kms_key_arn is None:
        return None
    stack = Stack.of(scope)
    if (known := stack.node.try_find_child(_ID)) is not None:
        return cast("kms.IKey", known)
    return kms.Key.from_key_arn(stack, _ID, stage.kms_key_arn)


def allow_key(role: iam.Role, stage: StageSettings, *actions: str) -> None:
    """Let a role use the customer managed key as these actions on encrypted resources need it.

    Args:
        role: The role.
        stage: Its settings; without a key nothing is allowed.
        actions: Actions of IAM, of which only some use a key.
    """
    needed = sorted({use for action in actions for use in _NEEDED.get(action, ())})
    if needed and (key := customer_key(role, stage)) is not None:
        key.grant(role, *needed)
