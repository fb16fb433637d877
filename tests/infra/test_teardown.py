"""``make destroy``, with a stand-in for the CDK and an account over HTTP."""

import json
import textwrap
from typing import Any

import pytest

from tests.infra.deployment_commands import KEY, Commands
from tests.support.aws.fake_aws import REGION
from tests.support.aws.scripted_aws import ScriptedAws


def make_stack(account: ScriptedAws, name: str, **resources: Any) -> None:
    account.client("cloudformation").create_stack(
        StackName=name, TemplateBody=json.dumps({"Resources": resources})
    )


def bucket_of(account: ScriptedAws, stack: str, logical_id: str) -> str:
    resource = account.client("cloudformation").describe_stack_resource(
        StackName=stack, LogicalResourceId=logical_id
    )
    return str(resource["StackResourceDetail"]["PhysicalResourceId"])


BUCKET = {"Type": "AWS::S3::Bucket"}
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "apigateway.amazonaws.com"}, "Action": "sts:AssumeRole"}
    ],
}


class TestDestroy:
    @pytest.fixture
    def deployed(self, commands: Commands) -> Commands:
        make_stack(
            commands.account, "VectorForge-dev-App",
            Uploads={**BUCKET, "Properties": {"BucketName": "vectorforge-dev-app-uploads"}},
            Kept={
                **BUCKET, "DeletionPolicy": "Retain", "Properties": {"BucketName": "vectorforge-dev-app-kept"}
            },
        )  # fmt: skip
        make_stack(commands.account, "SomebodyElses", Other=BUCKET)
        s3 = commands.account.client("s3")
        for bucket in ("vectorforge-dev-app-uploads", "vectorforge-dev-app-kept"):
            s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
            for number in range(3):
                s3.put_object(Bucket=bucket, Key=f"acme/{number}.md", Body=b"text")
            s3.delete_object(Bucket=bucket, Key="acme/0.md")
        return commands

    def test_empties_owned_buckets_and_preserves_others(self, deployed: Commands) -> None:
        done = deployed.run("destroy", "--yes")
        assert deployed.called == ["destroy"]
        assert deployed.calls[0][2:] == ["--all", "--force", "--context", "stage=dev"]
        assert "Emptying vectorforge-dev-app-uploads\n" in done.stdout
        s3 = deployed.account.client("s3")
        objects = {
            name: len(s3.list_object_versions(Bucket=name).get("Versions", []))
            for name in (bucket["Name"] for bucket in s3.list_buckets()["Buckets"])
            if name.startswith("vectorforge-")
        }
        assert objects == {"vectorforge-dev-app-kept": 3}

    def test_lists_surviving_resources_with_removal_commands(self, deployed: Commands) -> None:
        account = deployed.account
        secret = "vectorforge-dev/providers"
        account.client("secretsmanager").create_secret(Name=secret, SecretString=KEY)
        logs = account.client("logs")
        for name in ("/aws/lambda/vectorforge-dev-query", "VectorForge-dev-Data-Flow", "/vectorforge-dev2-x"):
            logs.create_log_group(logGroupName=name)
        for api, stage in (("a", "dev"), ("b", "prod")):
            tags = {"application": "vectorforge", "stage": stage}
            logs.create_log_group(logGroupName=f"API-Gateway-Execution-Logs_{api}/dev", tags=tags)
        account.client("sqs").create_queue(QueueName="vectorforge-dev-ingestion-dead")
        iam = account.client("iam")
        role = "VectorForge-dev-App-RestApiLogRole1234-x"
        allowed = {"Effect": "Allow", "Action": "logs:PutLogEvents", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        policy = iam.create_policy(PolicyName="PushLogs", PolicyDocument=document)["Policy"]["Arn"]
        for name in (role, role.replace("dev", "prod")):
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST))
        iam.attach_role_policy(RoleName=role, PolicyArn=policy)
        rds = account.client("rds")
        rds.create_db_instance(
            DBInstanceIdentifier="vectorforge-dev", DBInstanceClass="db.t4g.micro", Engine="postgres",
            AllocatedStorage=20, MasterUsername="owner", MasterUserPassword="no-matter",
        )  # fmt: skip
        rds.create_db_snapshot(DBInstanceIdentifier="vectorforge-dev", DBSnapshotIdentifier="last")
        rds.create_db_cluster(
            DBClusterIdentifier="vectorforge-dev", Engine="aurora-postgresql", MasterUsername="owner",
            MasterUserPassword="no-matter",
        )  # fmt: skip
        rds.create_db_cluster_snapshot(
            DBClusterIdentifier="vectorforge-dev", DBClusterSnapshotIdentifier="last-of-cluster"
        )
        backup = account.client("backup")
        for vault in ("vectorforge-dev-1a2b3c4d", "vectorforge-dev2-1a2b3c4d", "vectorforge-dev-of-others"):
            backup.create_backup_vault(BackupVaultName=vault)
        lines = deployed.run("destroy", "--yes").stdout.splitlines()
        commands = [line for line in lines if line.startswith("aws ")]
        [of_vault] = [line for line in lines if line.startswith("for ARN in ")]
        vault = f"--region {REGION} --backup-vault-name vectorforge-dev-1a2b3c4d"
        assert of_vault.startswith(
            f"for ARN in $(aws backup list-recovery-points-by-backup-vault {vault} --query "
        )
        assert f"do aws backup delete-recovery-point {vault} --recovery-point-arn $ARN; done" in of_vault
        assert of_vault.endswith(f"; aws backup delete-backup-vault {vault}")
        queue = account.client("sqs").get_queue_url(QueueName="vectorforge-dev-ingestion-dead")["QueueUrl"]
        proxied = account.environment["AWS_ENDPOINT_URL"]
        where = f"--region {REGION}"
        assert commands == [
            f"aws rds delete-db-snapshot {where} --db-snapshot-identifier last",
            f"aws rds delete-db-cluster-snapshot {where} --db-cluster-snapshot-identifier last-of-cluster",
            f"aws s3 rb {where} --force s3://vectorforge-dev-app-kept",
            f"aws secretsmanager delete-secret {where} --secret-id {secret} --force-delete-without-recovery",
            f"aws sqs delete-queue {where} --queue-url {queue.replace(account.url, proxied)}",
            f"aws logs delete-log-group {where} --log-group-name '/aws/lambda/vectorforge-dev-query'",
            f"aws logs delete-log-group {where} --log-group-name 'API-Gateway-Execution-Logs_a/dev'",
            f"aws logs delete-log-group {where} --log-group-name 'VectorForge-dev-Data-Flow'",
            (
                f"aws iam detach-role-policy --role-name {role} --policy-arn {policy} && "
                f"aws iam delete-role --role-name {role}"
            ),
        ]

    def test_secret_pending_deletion_is_reported(self, commands: Commands) -> None:
        secrets = commands.account.client("secretsmanager")
        secrets.create_secret(Name="vectorforge-dev/providers", SecretString=KEY)
        secrets.delete_secret(SecretId="vectorforge-dev/providers")
        assert "waits for its deletion and blocks its name" in commands.run("destroy").stdout

    def test_new_log_objects_are_emptied_on_retry(self, deployed: Commands) -> None:
        deployed.fail("destroy")
        deployed.run("destroy", "--yes")
        assert deployed.called == ["destroy", "destroy"]

    def test_second_cdk_failure_stops(self, deployed: Commands) -> None:
        script = deployed.folder / "cdk"
        script.write_text(script.read_text().replace("(here / command).unlink()", "pass"))
        deployed.fail("destroy")
        assert "`cdk destroy` failed" in deployed.run("destroy", "--yes", code=1).stderr
        assert deployed.called == ["destroy", "destroy"]

    def test_failure_without_buckets_to_empty_is_not_retried(self, commands: Commands) -> None:
        make_stack(commands.account, "VectorForge-dev-Data", Queue={"Type": "AWS::SQS::Queue"})
        commands.fail("destroy")
        commands.run("destroy", "--yes", code=1)
        assert commands.called == ["destroy"]

    def test_missing_stacks_are_no_error(self, commands: Commands) -> None:
        make_stack(commands.account, "VectorForge-prod-App", Queue={"Type": "AWS::SQS::Queue"})
        printed = commands.run("destroy").stdout
        assert printed == textwrap.dedent(
            f"""\
            There are no stacks of the stage dev in {REGION}.

            Nothing is left except CDK's bootstrap stack and the code in its bucket.
            """
        )
        assert commands.calls == []

    def test_requires_confirmation_by_stage_name(self, deployed: Commands) -> None:
        assert "--yes" in deployed.run("destroy", code=2).stderr
        done = deployed.run("destroy", typed="prod", code=2)
        assert "Type the stage's name (dev)" in done.stdout
        assert done.stderr == "error: Nothing was deleted.\n"
        assert deployed.calls == []
        deployed.run("destroy", typed="dev")
        assert deployed.called == ["destroy"]

    def test_protected_database_prevents_destroy(self, deployed: Commands) -> None:
        deployed.account.client("rds").create_db_instance(
            DBInstanceIdentifier="vectorforge-dev", DBInstanceClass="db.t4g.micro", Engine="postgres",
            AllocatedStorage=20, MasterUsername="owner", MasterUserPassword="no-matter",
            DeletionProtection=True,
        )  # fmt: skip
        assert "--no-deletion-protection" in deployed.run("destroy", "--yes", code=1).stderr
        assert deployed.calls == []

    def test_aws_error_is_reported(self, deployed: Commands) -> None:
        deployed.account.fail("cloudformation", "DescribeStacks", "AccessDenied", status=403)
        done = deployed.run("destroy", "--yes", code=1)
        assert done.stderr == "error: AWS refused DescribeStacks (AccessDenied).\n"
        deployed.environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
        done = deployed.run("destroy", "--yes", code=1)
        assert done.stderr == "error: AWS is unreachable (EndpointConnectionError).\n"

    def test_missing_credentials_are_reported_with_remedy(self, commands: Commands) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            commands.environment.pop(name)
        commands.environment["AWS_EC2_METADATA_DISABLED"] = "true"
        stderr = commands.run("destroy", "--yes", code=1).stderr
        assert stderr == "error: No AWS credentials: run `aws sso login`, or set AWS_PROFILE.\n"

    def test_missing_region_is_rejected(self, commands: Commands) -> None:
        del commands.environment["AWS_REGION"], commands.environment["AWS_DEFAULT_REGION"]
        assert "No region is chosen" in commands.run("destroy", code=2).stderr
