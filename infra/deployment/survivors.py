"""Resources left in an account by a stage whose stacks are deleted, with the commands that remove them.

Found by the names that the stacks assign, so the list is available at any time.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.stage_settings import StageSettings


def survivors(session: Any, stage: StageSettings) -> Iterator[tuple[str, str]]:
    """Yield each resource that is left, with the command that removes it.

    Raises:
        botocore.exceptions.ClientError: AWS refused a call.
        botocore.exceptions.BotoCoreError: AWS is unreachable.
    """
    where = f"--region {session.region_name}"
    yield from _snapshots(session, stage, where)
    yield from _vaults(session, stage, where)
    yield from _buckets(session, stage, where)
    yield from _secret(session, stage, where)
    yield from _queues(session, stage, where)
    yield from _log_groups(session, stage, where)
    yield from _log_role(session, stage)


def _snapshots(session: Any, stage: StageSettings, where: str) -> Iterator[tuple[str, str]]:
    """Yield manual snapshots of the instance, and of the cluster of Aurora."""
    rds = session.client("rds")
    for word, owner, key, what in (
        ("db", "DBInstance", "DBSnapshot", "Snapshot of the database, {AllocatedStorage} GiB"),
        ("db-cluster", "DBCluster", "DBClusterSnapshot", "Snapshot of the cluster of Aurora"),
    ):
        pages = rds.get_paginator(f"describe_{word.replace('-', '_')}_snapshots")
        ours = {f"{owner}Identifier": stage.prefix}
        for snapshot in pages.paginate(**ours, SnapshotType="manual").search(f"{key}s[]"):
            command = f"aws rds delete-{word}-snapshot {where} --{word}-snapshot-identifier"
            yield what.format(**snapshot), f"{command} {snapshot[f'{key}Identifier']}"


def _vaults(session: Any, stage: StageSettings, where: str) -> Iterator[tuple[str, str]]:
    """Yield vaults of AWS Backup, after the backups that must be deleted first."""
    backup = session.client("backup")
    ours = re.compile(rf"{stage.prefix}-[0-9a-f]+")
    pages = backup.get_paginator("list_backup_vaults").paginate()
    for vault in pages.search("BackupVaultList[]"):
        name = vault["BackupVaultName"]
        if not ours.fullmatch(name):
            continue
        named = f"{where} --backup-vault-name {name}"
        listed = f"aws backup list-recovery-points-by-backup-vault {named}"
        yield (
            f"Vault of AWS Backup with {vault.get('NumberOfRecoveryPoints', 0)} backups",
            (
                f"for ARN in $({listed} --query 'RecoveryPoints[].RecoveryPointArn' --output text); do "
                f"aws backup delete-recovery-point {named} --recovery-point-arn $ARN; done; "
                f"aws backup delete-backup-vault {named}"
            ),
        )


def _buckets(session: Any, stage: StageSettings, where: str) -> Iterator[tuple[str, str]]:
    """Yield buckets; CloudFormation derives their names from stack and construct, in lower case."""
    buckets = session.client("s3").get_paginator("list_buckets")
    pages = buckets.paginate(Prefix=f"{stage.prefix}-", BucketRegion=session.region_name)
    for bucket in pages.search("Buckets[]"):
        if bucket["Name"].startswith((f"{stage.prefix}-app-", f"{stage.prefix}-data-")):
            yield "Bucket with its objects", f"aws s3 rb {where} --force s3://{bucket['Name']}"


def _secret(session: Any, stage: StageSettings, where: str) -> Iterator[tuple[str, str]]:
    secrets = session.client("secretsmanager")
    name = stage.provider_secret
    try:
        found = secrets.describe_secret(SecretId=name)
    except secrets.exceptions.ResourceNotFoundException:
        return
    waiting = ", which waits for its deletion and blocks its name" if found.get("DeletedDate") else ""
    yield (
        f"Secret with the vendors' keys{waiting}",
        f"aws secretsmanager delete-secret {where} --secret-id {name} --force-delete-without-recovery",
    )


def _queues(session: Any, stage: StageSettings, where: str) -> Iterator[tuple[str, str]]:
    pages = session.client("sqs").get_paginator("list_queues").paginate(QueueNamePrefix=f"{stage.prefix}-")
    for url in filter(None, pages.search("QueueUrls[]")):  # an account without queues has no list
        yield "Queue with its messages", f"aws sqs delete-queue {where} --queue-url {url}"


def _log_groups(session: Any, stage: StageSettings, where: str) -> Iterator[tuple[str, str]]:
    logs = session.client("logs")
    ours = re.compile(rf"VectorForge-{stage.stage}-.*|(.*/)?{stage.prefix}([-/].*)?")
    for group in logs.get_paginator("describe_log_groups").paginate().search("logGroups[]"):
        name = str(group["logGroupName"])
        if ours.fullmatch(name) or _is_of_our_api(logs, stage, group):
            yield "Log group", f"aws logs delete-log-group {where} --log-group-name '{name}'"


def _is_of_our_api(logs: Any, stage: StageSettings, group: Mapping[str, Any]) -> bool:
    """Return whether execution logs are ours by their tags: API Gateway names them after the API's id."""
    name = str(group["logGroupName"])
    if not (name.startswith("API-Gateway-Execution-Logs_") and name.endswith(f"/{stage.stage}")):
        return False
    tags = logs.list_tags_for_resource(resourceArn=str(group["arn"]).removesuffix(":*"))["tags"]
    return (tags.get("application"), tags.get("stage")) == ("vectorforge", stage.stage)


def _log_role(session: Any, stage: StageSettings) -> Iterator[tuple[str, str]]:
    """Yield the role for API Gateway's logs, on which other APIs may rely (infra/front_doors/rest_api.py)."""
    iam = session.client("iam")
    for role in iam.get_paginator("list_roles").paginate().search("Roles[]"):
        name = role["RoleName"]
        if not name.startswith(f"VectorForge-{stage.stage}-App-RestApiLogRole"):
            continue
        attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
        detach = "".join(
            f"aws iam detach-role-policy --role-name {name} --policy-arn {policy['PolicyArn']} && "
            for policy in attached
        )
        yield (
            "Role with which API Gateway writes logs, perhaps those of other APIs, too",
            f"{detach}aws iam delete-role --role-name {name}",
        )
