"""``make destroy``: deletes a stage's stacks, and lists what survives with the commands to remove it.

    python -m infra.deployment.destroy --stage dev --region eu-central-1

Exit codes: 0 done, also if the stage did not exist; 1 the CDK or AWS failed; 2 the command line is wrong or
the answer was no; 130 interrupted.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from infra.deployment.cdk_command import (
    Cdk,
    DeploymentError,
    argument_parser,
    aws_session,
    chosen_cdk,
    guarded,
)
from infra.deployment.survivors import survivors
from infra.settings import choose
from infra.stage_settings import StageSettings

_ATTEMPTS = 2
"""S3 may deliver access logs to a bucket after it was emptied, which then cannot be deleted."""
_GONE = "DELETE_COMPLETE"


def destroy(cdk: Cdk, stage: StageSettings, session: Any, *, confirmed: bool) -> None:
    """Delete the stacks and everything they own.

    Args:
        cdk: The CDK command line.
        stage: The stage's settings.
        session: Session of boto3.
        confirmed: Delete without asking for the stage's name.

    Raises:
        DeploymentError: The answer was no, the database is protected, or a step failed.
    """
    stacks = list(_stacks(session, stage))
    if stacks:
        _refuse_protected_database(session, stage)
        if not confirmed:
            _confirm(stage, stacks)
        _delete(cdk, stage, session)
    else:
        sys.stdout.write(f"There are no stacks of the stage {stage.stage} in {session.region_name}.\n")
    left = list(survivors(session, stage))
    sys.stdout.write("\n".join(["", *_told(left), ""]))


def _delete(cdk: Cdk, stage: StageSettings, session: Any) -> None:
    for attempt in range(_ATTEMPTS):
        for bucket in list(_owned_buckets(session, stage)):
            sys.stdout.write(f"Emptying {bucket}\n")
            sys.stdout.flush()
            _empty(session, bucket)
        try:
            # The app, not the assembly: it need not be there, and nothing is bundled for this.
            cdk.run("destroy", "--all", "--force", "--context", f"stage={stage.stage}")
        except DeploymentError:
            if attempt + 1 == _ATTEMPTS or not list(_owned_buckets(session, stage)):
                raise
        else:
            return


def _stacks(session: Any, stage: StageSettings) -> Iterator[str]:
    pages = session.client("cloudformation").get_paginator("describe_stacks").paginate()
    for stack in pages.search("Stacks[]"):
        name = str(stack["StackName"])
        if name.startswith(f"VectorForge-{stage.stage}-") and stack["StackStatus"] != _GONE:
            yield name


def _confirm(stage: StageSettings, stacks: Sequence[str]) -> None:
    if not sys.stdin.isatty():
        raise DeploymentError("This is not a terminal; destroy without confirmation with --yes.", exit_code=2)
    sys.stdout.write(
        f"This deletes {' and '.join(stacks)} with all documents. A snapshot of the database stays.\n"
    )
    if input(f"Type the stage's name ({stage.stage}) to go on: ").strip() != stage.stage:
        raise DeploymentError("Nothing was deleted.", exit_code=2)


def _refuse_protected_database(session: Any, stage: StageSettings) -> None:
    """Refuse before anything is deleted: otherwise the functions would be gone and the database remain."""
    kind, protected = "instance", False
    rds = session.client("rds")
    with suppress(rds.exceptions.DBInstanceNotFoundFault):
        [found] = rds.describe_db_instances(DBInstanceIdentifier=stage.prefix)["DBInstances"]
        protected = found.get("DeletionProtection", False)
    if stage.database.engine == "aurora":
        with suppress(rds.exceptions.DBClusterNotFoundFault):
            [found] = rds.describe_db_clusters(DBClusterIdentifier=stage.prefix)["DBClusters"]
            kind, protected = "cluster", found.get("DeletionProtection", False)
    if protected:
        where = f"--region {session.region_name} --db-{kind}-identifier {stage.prefix}"
        raise DeploymentError(
            f"The database {stage.prefix} is protected against deletion. To delete it still, first run "
            f"`aws rds modify-db-{kind} {where} --no-deletion-protection --apply-immediately`."
        )


def _owned_buckets(session: Any, stage: StageSettings) -> Iterator[str]:
    """Yield buckets that are deleted with their stack; CloudFormation requires them to be empty."""
    cloudformation = session.client("cloudformation")
    for stack in _stacks(session, stage):
        template = cloudformation.get_template(StackName=stack)["TemplateBody"]["Resources"]
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
        for resource in pages.search("StackResourceSummaries[]"):
            policy = template.get(resource["LogicalResourceId"], {}).get("DeletionPolicy", "Delete")
            is_bucket = resource["ResourceType"] == "AWS::S3::Bucket"
            if is_bucket and policy == "Delete" and resource["ResourceStatus"] != _GONE:
                yield str(resource["PhysicalResourceId"])


def _empty(session: Any, bucket: str) -> None:
    """Delete every object and version, and stop access logs, which would create new ones elsewhere."""
    s3 = session.client("s3")
    s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        found = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        objects = [{"Key": item["Key"], "VersionId": item["VersionId"]} for item in found]
        if objects:
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
            for error in answer.get("Errors", [])[:1]:
                raise DeploymentError(f"{bucket} cannot be emptied ({error['Code']}).")


def _told(left: Sequence[tuple[str, str]]) -> Iterator[str]:
    if not left:
        yield "Nothing is left except CDK's bootstrap stack and the code in its bucket."
        return
    yield "Left over, with the commands that remove it:"
    for what, remedy in left:
        yield f"\n# {what}\n{remedy}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Destroy as the command line says and return the exit code."""
    parser = argument_parser("infra.deployment.destroy", __doc__.partition("\n")[0])
    parser.add_argument("--yes", action="store_true", help="do not ask for the stage's name")
    options = parser.parse_args(arguments)
    cdk, stage = chosen_cdk(options), choose(options.stage)
    return guarded(lambda: destroy(cdk, stage, aws_session(options.region), confirmed=options.yes))


if __name__ == "__main__":
    sys.exit(main())
