"""``make synth``, ``deploy`` and ``destroy``, with a stand-in for the CDK and an account over HTTP.

The stand-in is a program: it writes down how it was called, and does to the account what the CDK would do.
"""

import json
import os
import pty
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vectorforge.testing.fake_aws import REGION
from vectorforge.testing.scripted_aws import CANARY, EVERY, ScriptedAws

ROOT = Path(__file__).parents[2]
KEY = "sk-canary-of-openai"

CDK = """\
#!{python}
import json, os, shutil, sys
from pathlib import Path

here, arguments = Path(__file__).parent, sys.argv[1:]
command = arguments[0]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([os.environ.get("AWS_REGION"), *arguments]) + "\\n")
if (here / command).exists():  # told to fail
    (here / command).unlink()
    print("the stand-in fails", file=sys.stderr)
    sys.exit(7)


def option(name):
    return arguments[arguments.index(name) + 1]


if command == "synth":
    shutil.copytree(here / option("--context"), option("--output"), dirs_exist_ok=True)
if command == "deploy":
    stacks = [name for name in arguments[1:] if name.startswith("VectorForge-")]
    outputs = {{stack: {{"Example": f"curl {{stack}}", "ExportsOutputRef": "none"}} for stack in stacks}}
    Path(option("--outputs-file")).write_text(json.dumps(outputs))
if command == "destroy":
    import boto3

    cloudformation = boto3.client("cloudformation")
    for stack in cloudformation.describe_stacks()["Stacks"]:
        cloudformation.delete_stack(StackName=stack["StackName"])
"""

MIGRATE = {"Handler": "functions.migrate.handler.handler", "Code": {"S3Key": "c0de.zip"}}
TEMPLATES = {
    "Data": {"Resources": {}},
    "App": {
        "Resources": {
            "Migrate": {
                "Type": "AWS::Lambda::Function",
                "Properties": {"Handler": "functions.migrate.handler.handler", "Code": {"S3Key": "c0de.zip"}},
            },
            "OfCdk": {
                "Type": "AWS::Lambda::Function",
                "Properties": {"Handler": "index.handler", "Code": {}},
            },
        },
        "Outputs": {
            "Example": {"Description": "Asks a question", "Value": ""},
            "ExportsOutputRef": {"Value": ""},
            "NotMade": {"Description": "Of a condition that does not hold", "Value": ""},
        },
    },
}


@dataclass
class Commands:
    """Runs our commands."""

    folder: Path
    account: ScriptedAws
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self, module: str, *arguments: str, code: int = 0, typed: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run it, at a terminal when something is typed."""
        command = [sys.executable, "-m", f"infra.{module}", "--cdk", str(self.folder / "cdk"), *arguments]
        command += ["--assembly", str(self.folder / "cdk.out")]
        stdin, terminal = subprocess.DEVNULL, -1
        if typed is not None:
            terminal, stdin = pty.openpty()
            os.write(terminal, f"{typed}\n".encode())
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, stdin=stdin, capture_output=True, text=True, timeout=120
        )  # fmt: skip
        if typed is not None:
            os.close(terminal)
            os.close(stdin)
        assert done.returncode == code, done.stdout + done.stderr
        for secret in (KEY, CANARY, "Traceback"):
            assert secret not in done.stdout + done.stderr
        return done

    def fail(self, command: str) -> None:
        """Have the CDK fail at it, once."""
        (self.folder / command).touch()

    @property
    def calls(self) -> list[list[str]]:
        """Region and arguments of each call of the CDK."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def called(self) -> list[str]:
        """The CDK's commands, in order."""
        return [call[1] for call in self.calls]


@pytest.fixture(scope="module")
def account() -> Iterator[ScriptedAws]:
    with ScriptedAws() as server:
        yield server


@pytest.fixture
def commands(account: ScriptedAws, tmp_path: Path) -> Commands:
    account.reset()
    account.recover()
    (tmp_path / "cdk").write_text(CDK.format(python=sys.executable))
    (tmp_path / "cdk").chmod(0o755)
    for stage in ("dev", "prod"):
        _write_assembly(tmp_path, stage)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "VECTORFORGE_"))
    }
    nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), str(tmp_path / "none"))
    paths = os.pathsep.join((str(ROOT), str(ROOT / "shared")))
    return Commands(tmp_path, account, {**kept, **nowhere, **account.environment, "PYTHONPATH": paths})


def _write_assembly(folder: Path, stage: str) -> None:
    assembly = folder / f"stage={stage}"
    code = assembly / "asset.c0de" / "functions" / "migrate"
    code.mkdir(parents=True, exist_ok=True)
    (code / "handler.py").write_bytes(b"#" * 2_000_000)
    artifacts = {}
    for name, template in TEMPLATES.items():
        stack = f"VectorForge-{stage}-{name}"
        (assembly / f"{stack}.template.json").write_text(json.dumps(template))
        artifacts[stack] = {
            "type": "aws:cloudformation:stack",
            "environment": "aws://unknown-account/unknown-region",
            "properties": {"templateFile": f"{stack}.template.json"},
        }
    artifacts[f"VectorForge-{stage}-App.assets"] = {"type": "cdk:asset-manifest"}
    (assembly / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))


class TestSynth:
    def test_weighs_the_functions(self, commands: Commands) -> None:
        printed = commands.run("synth", "--stage", "prod").stdout
        assert "VectorForge-prod-App: 2 resources\n" in printed
        assert "migrate         2.0 MB of 80 MB, no bytecode: cold starts compile\n" in printed
        [call] = commands.calls
        assert "stage=prod" in call
        assert "--no-lookups" in call

    def test_says_so_when_the_code_is_compiled(self, commands: Commands) -> None:
        (commands.folder / "stage=dev" / "asset.c0de" / "handler.cpython-314.pyc").write_bytes(b"")
        assert "migrate         2.0 MB of 80 MB\n" in commands.run("synth").stdout

    def test_ends_with_the_cdk(self, commands: Commands) -> None:
        commands.fail("synth")
        printed = commands.run("synth", code=1).stderr
        assert printed.splitlines()[-1] == "error: `cdk synth` failed (exit code 7); see above."

    def test_without_the_cdk(self, commands: Commands) -> None:
        (commands.folder / "cdk").unlink()
        assert "npm ci --prefix infra" in commands.run("synth", code=2).stderr

    def test_of_a_stage_that_is_none(self, commands: Commands) -> None:
        assert "invalid choice" in commands.run("synth", "--stage", "typo", code=2).stderr
        assert commands.calls == []


class TestDeploy:
    def test_prints_what_to_paste(self, commands: Commands) -> None:
        done = commands.run("deploy", "--yes", "--skip-checks", "--region", "us-west-2")
        assert done.stdout.endswith(
            "\nThe stage dev is deployed.\n\n# Asks a question\ncurl VectorForge-dev-App\n"
        )
        assert commands.called == ["synth", "deploy"]
        region, _, *arguments = commands.calls[-1]
        assert region == "us-west-2"
        assert arguments[:2] == ["VectorForge-dev-Data", "VectorForge-dev-App"]
        assert arguments[arguments.index("--require-approval") + 1] == "never"
        assert arguments[arguments.index("--app") + 1] == str(commands.folder / "cdk.out")

    def test_asks_about_permissions_at_a_terminal(self, commands: Commands) -> None:
        commands.run("deploy", "--skip-checks", typed="")
        arguments = commands.calls[-1]
        assert arguments[arguments.index("--require-approval") + 1] == "broadening"

    def test_wants_an_answer_where_nobody_can_give_one(self, commands: Commands) -> None:
        assert "--yes" in commands.run("deploy", "--skip-checks", code=2).stderr
        assert commands.calls == []

    def test_stops_at_a_check_that_fails(self, commands: Commands) -> None:
        commands.account.fail(*EVERY, "ExpiredToken", status=403)
        done = commands.run("deploy", "--yes", code=1)
        assert "fail credentials  the session has expired" in done.stdout
        assert done.stderr.endswith(
            "A check failed, and nothing was deployed. --skip-checks deploys all the same.\n"
        )
        assert commands.called == ["synth"]

    def test_checks_the_region_it_deploys_to(self, commands: Commands) -> None:
        commands.account.fail(*EVERY, "ExpiredToken", status=403)
        printed = commands.run("deploy", "--yes", "--region", "ap-south-1", code=1).stdout
        assert "ok   region       ap-south-1" in printed

    @pytest.mark.parametrize("command", ["synth", "deploy"])
    def test_ends_with_the_cdk(self, commands: Commands, command: str) -> None:
        commands.fail(command)
        done = commands.run("deploy", "--yes", "--skip-checks", code=1)
        assert f"`cdk {command}` failed" in done.stderr
        assert "is deployed" not in done.stdout


class TestDeployOfAStageThatStartsBeforeItsFirstQuestion:
    def test_stops_before_its_functions_while_there_is_no_key(self, commands: Commands) -> None:
        done = commands.run("deploy", "--yes", "--skip-checks", "--stage", "prod", code=1)
        assert "vectorforge-prod/providers" in done.stderr
        assert commands.called == ["synth", "deploy"]
        assert commands.calls[-1][2:4] == ["VectorForge-prod-Data", "--app"]

    @pytest.mark.parametrize("content", ["{}", '{"openai_api_key": ""}', '{"google_api_key": "x"}'])
    def test_is_not_content_with_a_secret_without_the_key(self, commands: Commands, content: str) -> None:
        self._make_secret(commands, content)
        commands.run("deploy", "--yes", "--skip-checks", "--stage", "prod", code=1)

    def test_goes_on_when_the_key_is_there(self, commands: Commands) -> None:
        self._make_secret(commands, json.dumps({"openai_api_key": KEY}))
        commands.run("deploy", "--yes", "--skip-checks", "--stage", "prod")
        assert commands.called == ["synth", "deploy"]
        assert commands.calls[-1][2:4] == ["VectorForge-prod-Data", "VectorForge-prod-App"]

    @pytest.mark.parametrize("content", ["not JSON " + KEY, ""])
    def test_says_that_a_secret_cannot_be_read(self, commands: Commands, content: str) -> None:
        if content:
            self._make_secret(commands, content)
        else:
            commands.account.fail("secretsmanager", "GetSecretValue", "AccessDeniedException")
        done = commands.run("deploy", "--yes", "--skip-checks", "--stage", "prod", code=1)
        assert "vectorforge-prod/providers cannot be read" in done.stderr

    @staticmethod
    def _make_secret(commands: Commands, content: str) -> None:
        secrets = commands.account.client("secretsmanager")
        secrets.create_secret(Name="vectorforge-prod/providers", SecretString=content)


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

    def test_empties_what_it_owns_and_keeps_the_rest(self, deployed: Commands) -> None:
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

    def test_says_what_survives_and_what_removes_it(self, deployed: Commands) -> None:
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
        rds = account.client("rds")
        rds.create_db_instance(
            DBInstanceIdentifier="vectorforge-dev", DBInstanceClass="db.t4g.micro", Engine="postgres",
            AllocatedStorage=20, MasterUsername="owner", MasterUserPassword="no-matter",
        )  # fmt: skip
        rds.create_db_snapshot(DBInstanceIdentifier="vectorforge-dev", DBSnapshotIdentifier="last")
        commands = [
            line for line in deployed.run("destroy", "--yes").stdout.splitlines() if line.startswith("aws ")
        ]
        queue = account.client("sqs").get_queue_url(QueueName="vectorforge-dev-ingestion-dead")["QueueUrl"]
        proxied = account.environment["AWS_ENDPOINT_URL"]
        where = f"--region {REGION}"
        assert commands == [
            f"aws rds delete-db-snapshot {where} --db-snapshot-identifier last",
            f"aws s3 rb {where} --force s3://vectorforge-dev-app-kept",
            f"aws secretsmanager delete-secret {where} --secret-id {secret} --force-delete-without-recovery",
            f"aws sqs delete-queue {where} --queue-url {queue.replace(account.url, proxied)}",
            f"aws logs delete-log-group {where} --log-group-name '/aws/lambda/vectorforge-dev-query'",
            f"aws logs delete-log-group {where} --log-group-name 'API-Gateway-Execution-Logs_a/dev'",
            f"aws logs delete-log-group {where} --log-group-name 'VectorForge-dev-Data-Flow'",
        ]

    def test_tells_a_secret_that_waits_for_its_deletion(self, commands: Commands) -> None:
        secrets = commands.account.client("secretsmanager")
        secrets.create_secret(Name="vectorforge-dev/providers", SecretString=KEY)
        secrets.delete_secret(SecretId="vectorforge-dev/providers")
        assert "waits for its deletion and blocks its name" in commands.run("destroy").stdout

    def test_empties_again_when_logs_have_come_meanwhile(self, deployed: Commands) -> None:
        deployed.fail("destroy")
        deployed.run("destroy", "--yes")
        assert deployed.called == ["destroy", "destroy"]

    def test_gives_up_when_the_cdk_fails_again(self, deployed: Commands) -> None:
        script = deployed.folder / "cdk"
        script.write_text(script.read_text().replace("(here / command).unlink()", "pass"))
        deployed.fail("destroy")
        assert "`cdk destroy` failed" in deployed.run("destroy", "--yes", code=1).stderr
        assert deployed.called == ["destroy", "destroy"]

    def test_does_not_try_again_where_there_is_nothing_to_empty(self, commands: Commands) -> None:
        make_stack(commands.account, "VectorForge-dev-Data", Queue={"Type": "AWS::SQS::Queue"})
        commands.fail("destroy")
        commands.run("destroy", "--yes", code=1)
        assert commands.called == ["destroy"]

    def test_of_nothing_is_no_error(self, commands: Commands) -> None:
        make_stack(commands.account, "VectorForge-prod-App", Queue={"Type": "AWS::SQS::Queue"})
        printed = commands.run("destroy").stdout
        assert printed == textwrap.dedent(
            f"""\
            There are no stacks of the stage dev in {REGION}.

            Nothing of it is left, but CDK's own bootstrap stack and the code in its bucket.
            """
        )
        assert commands.calls == []

    def test_wants_the_stage_s_name(self, deployed: Commands) -> None:
        assert "--yes" in deployed.run("destroy", code=2).stderr
        done = deployed.run("destroy", typed="prod", code=2)
        assert "Type the stage's name (dev)" in done.stdout
        assert done.stderr == "error: Nothing was deleted.\n"
        assert deployed.calls == []
        deployed.run("destroy", typed="dev")
        assert deployed.called == ["destroy"]

    def test_leaves_everything_while_the_database_is_protected(self, deployed: Commands) -> None:
        deployed.account.client("rds").create_db_instance(
            DBInstanceIdentifier="vectorforge-dev", DBInstanceClass="db.t4g.micro", Engine="postgres",
            AllocatedStorage=20, MasterUsername="owner", MasterUserPassword="no-matter",
            DeletionProtection=True,
        )  # fmt: skip
        assert "--no-deletion-protection" in deployed.run("destroy", "--yes", code=1).stderr
        assert deployed.calls == []

    def test_says_what_aws_refuses(self, deployed: Commands) -> None:
        deployed.account.fail("cloudformation", "DescribeStacks", "AccessDenied", status=403)
        done = deployed.run("destroy", "--yes", code=1)
        assert done.stderr == "error: AWS refused DescribeStacks (AccessDenied).\n"
        deployed.environment["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
        done = deployed.run("destroy", "--yes", code=1)
        assert done.stderr == "error: AWS cannot be asked (EndpointConnectionError).\n"

    def test_wants_a_region(self, commands: Commands) -> None:
        del commands.environment["AWS_REGION"], commands.environment["AWS_DEFAULT_REGION"]
        assert "No region is chosen" in commands.run("destroy", code=2).stderr
