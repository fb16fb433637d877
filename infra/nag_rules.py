"""cdk-nag's rules for AWS solutions and serverless, and every acknowledged finding with its reason.

``hold_to_rules`` makes each ``cdk synth`` fail on a finding that is not listed in ``ACKNOWLEDGED``. The tests
also fail on an entry there that nothing needs any more. Rules: https://github.com/cdklabs/cdk-nag/blob/main/RULES.md
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aws_cdk import Acknowledgment, App, CfnElement, Stack, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks
from constructs import IConstruct

from infra.constructs.bedrock import named_models
from infra.front_doors.rest_api import PUBLIC_PATHS
from infra.stage_settings import StageSettings

_ARN_OF = re.compile(r"<([^<>]+)\.Arn>")
_FUNCTION_PATHS = (
    "App/Migration/Migrate", "App/QueryLog/Writer", "App/Ingestion/Ingest", "App/Query/Function",
    "App/RestApi/KeyAuthorizer/Function", "App/Probe/Function",
)  # fmt: skip
_FUNCTION_ROLES = tuple(f"{path}/Role" for path in _FUNCTION_PATHS)
_FUNCTIONS = tuple(f"{path}/Function" for path in _FUNCTION_PATHS)
_QUEUES = ("App/QueryLog/Records", "App/Ingestion/Jobs")
_API = "App/RestApi/Api/Default"
_PUBLIC_PATHS = tuple(path.rstrip("/") for path in PUBLIC_PATHS)
_PUBLIC = tuple(f"{_API}{path}/{method}" for path in _PUBLIC_PATHS for method in ("GET", "HEAD"))
_EXECUTIONS = "Resource::arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:execution"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A finding that is no fault, or a deliberate trade-off.

    Attributes:
        rule: Its id as cdk-nag writes it, but with a construct's path for its logical id
            (``<QueryLog/Overflow.Arn>``), and ``{prefix}`` for the stage's prefix. There are no patterns: a
            new wildcard is a new finding.
        at: Constructs that it is acknowledged at and below: "App" or "Data", then the path in that stack.
        reason: Reason.
        when: Stages that have it.
    """

    rule: str
    at: tuple[str, ...]
    reason: str
    when: Callable[[StageSettings], bool] = lambda _: True


def _reads_restored_cluster(stage: StageSettings) -> bool:
    return stage.database.engine == "aurora" and stage.backup is not None and stage.backup.restore_test


ACKNOWLEDGED = (
    Acknowledged(
        "AwsSolutions-IAM5[Resource::*]",
        _FUNCTION_ROLES,
        "Lambda makes the network interfaces, the function's code is denied them; X-Ray and Bedrock's lists "
        "of models have no resources; hosts are started from one launch template only: https://docs.aws.amazon.com/lambda/latest/dg/configuration-vpc.html",
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Resource::*]",
        ("App/BulkLoad/Role", "App/BackupNotices/Cluster/Role"),
        "Deliveries of logs and X-Ray have no resources: "
        "https://docs.aws.amazon.com/step-functions/latest/dg/cw-logs.html",
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Resource::*]",
        ("App/Operator/Role",),
        "The agent of Systems Manager has actions without resources: "
        "https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonmessagegatewayservice.html",
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::cdk-hnb659fds-assets-<AWS::AccountId>-<AWS::Region>/*]",
        ("App/Operator/Role",),
        "Code that the CDK deployed, without data: a host reads its tools also after a rollback.",
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Resource::<QueryLog/Overflow.Arn>/query-logs/*]",
        ("App/QueryLog/Writer/Role", "App/Query/Function/Role"),
        "The objects of one prefix of one bucket; their names are random.",
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Resource::<Ingestion/Uploads.Arn>/*]",
        ("App/Ingestion/Ingest/Role", "App/Query/Function/Role"),
        "Uploads of every tenant. The query function signs URLs for one object of the caller's tenant.",
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Resource::<Ingestion/Originals.Arn>/*]",
        ("App/Ingestion/Ingest/Role", "App/Query/Function/Role"),
        "Originals of every tenant. The query function signs links to one object of the caller's tenant.",
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Resource::<BulkLoad/Reports.Arn>/reports/*]",
        ("App/BulkLoad/Role",),
        "Each run writes its report under an id of its own.",
    ),
    Acknowledged(
        f"AwsSolutions-IAM5[{_EXECUTIONS}:{{prefix}}-bulk-load:*]",
        ("App/BulkLoad/Role",),
        "Executions of this state machine, whose ids are made when they start.",
    ),
    Acknowledged(
        f"AwsSolutions-IAM5[{_EXECUTIONS}:{{prefix}}-bulk-load/Objects:*]",
        ("App/BulkLoad/Role",),
        "Batches of this state machine's map, whose ids are made when they start.",
    ),
    Acknowledged(
        "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
        "AmazonAPIGatewayPushToCloudWatchLogs]",
        ("App/RestApi/LogRole",),
        "API Gateway's log role belongs to the account, not to this stage; AWS made this policy for it: "
        "https://docs.aws.amazon.com/apigateway/latest/developerguide/set-up-logging.html",
    ),
    Acknowledged(
        "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
        "AWSBackupServiceRolePolicyForBackup]",
        ("Data/Backup",),
        "AWS adds permissions to it as AWS Backup needs them; only AWS Backup assumes the role: "
        "https://docs.aws.amazon.com/aws-backup/latest/devguide/iam-service-roles.html",
    ),
    Acknowledged(
        "AwsSolutions-IAM4[Policy::arn:<AWS::Partition>:iam::aws:policy/service-role/"
        "AWSBackupServiceRolePolicyForRestores]",
        ("Data/RestoreTest",),
        "As for backups: AWS maintains it, and only AWS Backup assumes the role.",
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:rds-db:<AWS::Region>:<AWS::AccountId>:dbuser:*/"
        "vectorforge_owner]",
        ("App/Migration/Migrate/Role",),
        "A restored instance has a new id. The function reaches only this stage's security group.",
        when=lambda stage: stage.backup is not None and stage.backup.restore_test,
    ),
    *(
        Acknowledged(
            f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:rds:<AWS::Region>:<AWS::AccountId>:{resource}]",
            ("App/BackupNotices/Cluster/Role",),
            "AWS Backup names a restored cluster; RDS checks changes of it against its groups, too.",
            when=_reads_restored_cluster,
        )
        for resource in (
            "cluster:awsbackup-restore-*",
            "db:awsbackup-restore-*",
            "cluster-pg:*",
            "og:*",
            "pg:*",
            "subgrp:*",
        )
    ),
    Acknowledged(
        "AwsSolutions-IAM5[Action::kms:GenerateDataKey*]",
        ("App/BackupNotices/Role",),
        "CDK's grant for publishing to an encrypted topic, on the topic's key alone.",
    ),
    Acknowledged(
        "AwsSolutions-SMG4",
        ("Data/ProviderKeys/Secret",),
        "AWS cannot rotate vendors' keys; the functions read a new one without a deployment.",
    ),
    Acknowledged(
        "AwsSolutions-SMG4",
        ("App/TenantKeys/Tenants",),
        "It holds ids of keys and names of tenants, which grant no access; each deployment writes it.",
        when=lambda stage: stage.has_gateway_keys,
    ),
    Acknowledged(
        "AwsSolutions-RDS11",
        ("Data/Database/Instance",),
        "Another port adds no security: only the proxy and the migrate function reach the instance.",
    ),
    Acknowledged(
        "AwsSolutions-RDS3",
        ("Data/Database/Instance",),
        "A development stage may lose a zone; multi_az doubles the price of the instance.",
        when=lambda stage: not stage.database.multi_az,
    ),
    Acknowledged(
        "AwsSolutions-RDS10",
        ("Data/Database",),  # instance, or cluster
        "A development stage can be deleted in one step; a snapshot is taken.",
        when=lambda stage: not stage.database.deletion_protection,
    ),
    Acknowledged(
        "AwsSolutions-VPC7",
        ("Data/Network/Vpc",),
        "A development stage saves the storage of flow_logs; only the database listens in the VPC.",
        when=lambda stage: not stage.network.flow_logs,
    ),
    Acknowledged(
        "AwsSolutions-APIG2",
        ("App/RestApi/Api",),
        "The application validates every request and answers with a problem document that names the field.",
    ),
    Acknowledged(
        "AwsSolutions-APIG3",
        ("App/RestApi/Api",),
        "Every path with a cost requires a key with a rate limit; web_acl adds a firewall.",
        when=lambda stage: not stage.web_acl,
    ),
    *(
        Acknowledged(rule, _PUBLIC, "Health and documentation; rate limited, and without data of tenants.")
        for rule in ("AwsSolutions-APIG4", "AwsSolutions-COG4")
    ),
    Acknowledged(
        "AwsSolutions-APIG4",
        tuple(f"{_API}{path}/OPTIONS" for path in (*_PUBLIC_PATHS, "/{proxy+}")),
        "Browsers send preflights without a credential; limited in rate, and without data of any tenant.",
        when=lambda stage: bool(stage.cors_origins),
    ),
    Acknowledged(
        "AwsSolutions-APIG4",
        (f"{_API}/{{proxy+}}/ANY",),
        "Callers are programs: API Gateway requires a key, and the application maps it to a tenant.",
        when=lambda stage: stage.authorizer is None and stage.tokens is None,
    ),
    *(
        Acknowledged(
            rule,
            (f"{_API}/{{proxy+}}/ANY",),
            "A REST API verifies tokens of Cognito only; the function verifies others. WAF limits floods.",
            when=lambda stage: stage.token_issuer is not None,
        )
        for rule in ("AwsSolutions-APIG4", "AwsSolutions-COG4")
    ),
    Acknowledged(
        "AwsSolutions-COG4",
        (f"{_API}/{{proxy+}}/ANY",),
        "Callers are programs: API Gateway requires a key, and the application maps it to a tenant.",
        when=lambda stage: stage.tokens is None,
    ),
    Acknowledged(
        "AwsSolutions-CFR1",
        ("App/QueryUrl/Distribution",),
        "Tenants are admitted by their keys, from any country.",
    ),
    Acknowledged(
        "AwsSolutions-CFR2",
        ("App/QueryUrl/Distribution",),
        "CloudFront's firewalls exist in us-east-1 only, and the application requires a key.",
    ),
    Acknowledged(
        "AwsSolutions-CFR3",
        ("App/QueryUrl/Distribution",),
        "The function logs each request with its tenant; CloudFront's logs would add addresses of people.",
    ),
    Acknowledged(
        "AwsSolutions-CFR4",
        ("App/QueryUrl/Distribution",),
        "CloudFront's own domain accepts old TLS versions; cloudfront_domain avoids that.",
        when=lambda stage: stage.cloudfront_domain is None,
    ),
    Acknowledged(
        "Serverless-LambdaDLQ",
        _FUNCTIONS,
        "It is for asynchronous calls. Queues have dead-letter queues of their own, queries are answered "
        "at once, the look for jobs comes again, and CloudFormation waits for the migrate function's answer.",
    ),
    Acknowledged(
        "Serverless-LambdaAsyncFailureDestination",
        ("App/Migration/Migrate/Alias", "App/Ingestion/Ingest/Alias", "App/Probe/Function/Alias"),
        "A look for jobs or a probe that failed is made up for by the next, and an alarm counts failed "
        "probes; CloudFormation hears of a failed migration.",
    ),
    Acknowledged(
        "Serverless-EventBusDLQ",
        (
            "App/Ingestion/Look",
            "App/Migration/Index",
            "App/Probe/Schedule",
            "App/BackupNotices/backup-failed",
            "App/BackupNotices/restore-test-failed",
            "App/BackupNotices/restored",
            "App/BackupNotices/restored-not-read",
        ),
        "EventBridge retries a notice for a day. A look for jobs that could not be started is made up for by "
        "the next, five minutes later, and so is a probe, whose alarm also fires without points; the "
        "building of indexes, without which searches are slower and no less right, on the next day.",
    ),
    Acknowledged(
        "Serverless-LambdaEventSourceMappingDestination",
        tuple(f"{queue}/Source" for queue in _QUEUES),
        "It is for streams; a queue has a dead-letter queue.",
    ),
    Acknowledged(
        "Serverless-SQSRedrivePolicy",
        tuple(f"{queue}/DeadLetters" for queue in _QUEUES),
        "This is the dead-letter queue.",
    ),
)


def hold_to_rules(app: App, stacks: Mapping[str, Stack], stage: StageSettings) -> None:
    """Make ``app.synth()`` fail on a finding that is not acknowledged.

    Args:
        app: The app.
        stacks: "App" and "Data" -> the stage's stacks.
        stage: The stage's settings.
    """
    acknowledge(stacks, stage)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))


def acknowledge(stacks: Mapping[str, Stack], stage: StageSettings) -> None:
    """Acknowledge the findings of a stage."""
    for found in (*ACKNOWLEDGED, *_of_models(stage)):
        for construct, rule in places(found, stacks, stage):
            Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=found.reason))


def _of_models(stage: StageSettings) -> Iterator[Acknowledged]:
    """Yield the findings of a stage that uses inference profiles of Amazon Bedrock."""
    for model in sorted({model.profiled for model in named_models(stage) if model.profiled}):
        yield Acknowledged(
            f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:bedrock:*::foundation-model/{model}]",
            ("App/Ingestion/Ingest/Role", "App/Query/Function/Role"),
            "One model, through one inference profile only, which chooses the region.",
        )


def places(
    found: Acknowledged, stacks: Mapping[str, Stack], stage: StageSettings
) -> Iterator[tuple[IConstruct, str]]:
    """Yield the constructs of an entry, each with the rule's id as cdk-nag writes it."""
    if not found.when(stage):
        return
    for path in found.at:
        name, _, rest = path.partition("/")
        construct = _find(stacks[name], rest)
        if construct is not None:  # a front door that the stage does not have
            yield construct, _written(found.rule, stacks[name], stage)


def _written(rule: str, stack: Stack, stage: StageSettings) -> str:
    def logical_id(named: re.Match[str]) -> str:
        construct = _find(stack, named[1])
        resource = construct.node.default_child if construct is not None else None
        return f"<{stack.get_logical_id(resource)}.Arn>" if isinstance(resource, CfnElement) else named[0]

    return _ARN_OF.sub(logical_id, rule).replace("{prefix}", stage.prefix)


def _find(scope: IConstruct, path: str) -> IConstruct | None:
    for part in path.split("/"):
        child = scope.node.try_find_child(part)
        if child is None:
            return None
        scope = child
    return scope
