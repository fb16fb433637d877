"""Points of AWS Backup: daily backups, their copies, and the monthly restore test."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from infra.data.restore_test import restore_plan_name
from infra.verification.points import AwsPoint, PointSkippedError, require
from infra.verification.stage import DeployedStage

_DAILY = timedelta(days=2)
"""Age of the newest backup below which backups are daily: one may be running."""


def _backups(stage: DeployedStage) -> str:
    """Find the newest backup, and its copy in the other region."""
    settings = stage.settings.backup
    if settings is None:
        raise PointSkippedError("the stage has no `backup`")
    backup = stage.aws("backup")
    kind = "Aurora" if stage.settings.database.engine == "aurora" else "RDS"
    pages = backup.get_paginator("list_backup_jobs").paginate(ByResourceType=kind)
    vaults = f"{stage.settings.prefix}-"
    jobs = [job for job in pages.search("BackupJobs[]") if job["BackupVaultName"].startswith(vaults)]
    seen = [f"backup {_completed(jobs, settings.hour_utc)}"]
    if settings.copy_vault_arn is not None:
        pages = backup.get_paginator("list_copy_jobs").paginate(
            ByResourceType=kind, ByDestinationVaultArn=settings.copy_vault_arn
        )
        mine = [copy for copy in pages.search("CopyJobs[]") if f":{vaults}" in copy["SourceBackupVaultArn"]]
        seen.append(f"copy {_completed(mine, settings.hour_utc)}")
    return ", ".join(seen)


def _completed(jobs: list[dict[str, Any]], hour: int) -> str:
    if not jobs:
        raise PointSkippedError(f"no backup yet, or no copy: they begin at {hour:02}:00 UTC")
    newest = max(jobs, key=lambda job: job["CreationDate"])
    began, status = newest["CreationDate"], newest["State"]
    if status in ("CREATED", "PENDING", "RUNNING"):
        raise PointSkippedError(f"the job of {began:%Y-%m-%d} is {status}: repeat later")
    require(status == "COMPLETED", f"the job of {began:%Y-%m-%d} is {status}")
    require(began > datetime.now(UTC) - _DAILY, f"the newest job is of {began:%Y-%m-%d}")
    return f"of {began:%Y-%m-%d}"


def _restore_test(stage: DeployedStage) -> str:
    """Find the newest monthly restore, and the line of the migrate function that read it."""
    if stage.settings.backup is None or not stage.settings.backup.restore_test:
        raise PointSkippedError("the stage has no `backup` with restore_test")
    backup = stage.aws("backup")
    name = restore_plan_name(stage.settings.prefix)
    plans = backup.list_restore_testing_plans()["RestoreTestingPlans"]
    arns = [plan["RestoreTestingPlanArn"] for plan in plans if plan["RestoreTestingPlanName"] == name]
    require(arns, f"AWS Backup has no restore testing plan {name}")
    jobs = backup.list_restore_jobs(ByRestoreTestingPlanArn=arns[0])["RestoreJobs"]
    if not jobs:
        raise PointSkippedError("no restore test yet: it takes place on the first of each month")
    job = max(jobs, key=lambda one: one["CreationDate"])
    began, status = job["CreationDate"], job["Status"]
    if status in ("PENDING", "RUNNING"):
        raise PointSkippedError(f"the restore test of {began:%Y-%m-%d} is {status}: repeat later")
    require(status == "COMPLETED", f"the restore test of {began:%Y-%m-%d} is {status}")
    if began < datetime.now(UTC) - timedelta(days=stage.settings.log_retention_days):
        raise PointSkippedError(f"the log of the restore test of {began:%Y-%m-%d} has expired")
    found = stage.aws("logs").filter_log_events(
        logGroupName=f"/aws/lambda/{stage.name('migrate')}",
        startTime=int(began.timestamp() * 1000),
        filterPattern='"A restored database was read"',
    )
    require(found["events"], f"the database restored on {began:%Y-%m-%d} was not read")
    line: str = json.loads(found["events"][-1]["message"])["message"]
    return f"restored on {began:%Y-%m-%d}. {line}"


BACKUP_POINTS: Final = (
    AwsPoint("backups", "the daily backup is complete, and its copy", _backups),
    AwsPoint("restore-test", "the monthly restore test restores, and its rows are read", _restore_test),
)
