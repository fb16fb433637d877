"""``vectorforge doctor --aws`` over a cloud assembly of CDK and an account that answers over HTTP."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_rds as rds
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs

from vectorforge.cli.app import run
from vectorforge.cli.deployed_stacks import DeployedStack, check_stacks
from vectorforge.testing.fake_aws import REGION
from vectorforge.testing.scripted_aws import CANARY, EVERY, ScriptedAws

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
ROOT = Path(__file__).parents[2]
PINNED = json.loads((ROOT / "infra" / "package.json").read_text())["devDependencies"]["aws-cdk"]
BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
ORDER = [
    "node", "cdk", "stacks", "bytecode", "region", "credentials", "deployed", "leftovers", "bootstrap",
    "concurrency", "vpcs", "addresses", "interfaces", "instances", "database",
]  # fmt: skip


def synthesize(folder: Path, stage: str, *, nat: bool, region: str | None = None) -> None:
    """Stacks named as a stage's, with what the checks look for, in CDK's own format."""
    app = App(outdir=str(folder), context={"aws:cdk:bundling-stacks": []})
    environment = Environment(region=region) if region else None
    data = Stack(app, f"VectorForge-{stage}-Data", env=environment)
    private = ec2.SubnetType.PRIVATE_WITH_EGRESS
    public = [ec2.SubnetConfiguration(name="nat", subnet_type=ec2.SubnetType.PUBLIC)] if nat else []
    vpc = ec2.Vpc(
        data, "Vpc", nat_gateways=2 if nat else 0, max_azs=2,
        ip_protocol=ec2.IpProtocol.IPV4_ONLY if nat else ec2.IpProtocol.DUAL_STACK,
        create_internet_gateway=nat, restrict_default_security_group=False,
        subnet_configuration=[*public, ec2.SubnetConfiguration(name="functions", subnet_type=private)],
    )  # fmt: skip
    version = rds.PostgresEngineVersion.VER_17_9
    rds.DatabaseInstance(
        data, "Instance", engine=rds.DatabaseInstanceEngine.postgres(version=version), vpc=vpc,
        vpc_subnets=ec2.SubnetSelection(subnet_type=private), multi_az=nat,
        instance_type=ec2.InstanceType("t4g.micro"), manage_master_user_password=True,
    )  # fmt: skip
    logs.LogGroup(data, "Logs", log_group_name=f"/aws/lambda/vectorforge-{stage}")
    sqs.Queue(data, "Queue", queue_name=f"vectorforge-{stage}-jobs")
    secretsmanager.Secret(data, "Keys", secret_name=f"vectorforge-{stage}/providers")
    code = folder.parent / f"{folder.name}-code"
    compiled = code / "functions" / "query" / "__pycache__"
    compiled.mkdir(parents=True)
    (compiled / "handler.cpython-314.pyc").write_bytes(b"")
    lambda_.Function(
        Stack(app, f"VectorForge-{stage}-App", env=environment), "Query",
        code=lambda_.Code.from_asset(str(code)), handler="functions.query.handler.handler",
        runtime=lambda_.Runtime.PYTHON_3_14, reserved_concurrent_executions=20,
        environment={
            "VECTORFORGE_OPENAI_BASE_URL": "https://127.0.0.1/v1",
            "VECTORFORGE_EMBEDDING_BASE_URL": "https://[::1]/v1",
            "VECTORFORGE_GOOGLE_BASE_URL": "https://no-such-host.invalid/v1",
        },
    )  # fmt: skip
    app.synth()


@pytest.fixture(scope="module")
def assemblies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One assembly for each stage: "dev" is dual-stack, "prod" has NAT, "bound" belongs to a region."""
    folder = tmp_path_factory.mktemp("assemblies")
    synthesize(folder / "dev", "dev", nat=False)
    synthesize(folder / "prod", "prod", nat=True)
    synthesize(folder / "bound", "bound", nat=False, region="us-west-2")
    return folder


@pytest.fixture(scope="module")
def account() -> Iterator[ScriptedAws]:
    with ScriptedAws() as server:
        yield server


@dataclass
class Doctor:
    """Runs the command in a clone, which is a folder with what the checks read."""

    clone: Path
    assemblies: Path
    account: ScriptedAws
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def sign_out(self) -> None:
        """What needs no account is checked before, and is all that is checked then."""
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self.patch.delenv(name)

    def run(self, *arguments: str, stage: str = "prod", **variables: str) -> tuple[int, str]:
        """Exit code and what was printed on stdout."""
        with self.patch.context() as patch:
            patch.chdir(self.clone)
            for name, value in variables.items():
                patch.setenv(name, value)
            assembly = str(self.assemblies / stage)
            code = run(["doctor", "--aws", "--stage", stage, "--assembly", assembly, *arguments])
        printed = self.capsys.readouterr()
        assert "Traceback" not in printed.err
        for secret in (CANARY, "testing"):  # the latter are the keys of ``aws_environment``
            assert secret not in printed.out + printed.err
        return code, printed.out

    def checks(self, *arguments: str, stage: str = "prod", **variables: str) -> dict[str, dict[str, str]]:
        """The last check of each name."""
        code, printed = self.run("--json", *arguments, stage=stage, **variables)
        report = json.loads(printed)
        failed = any(check["status"] == "fail" for check in report["checks"])
        assert (code, report["ok"]) == (1 if failed else 0, not failed)
        for check in report["checks"]:
            assert (check["status"] == "ok") == (not check["remedy"])
            assert "\n" not in check["detail"] + check["remedy"]
        return {check["name"]: check for check in report["checks"]}

    def statuses(self, *arguments: str, stage: str = "prod", **variables: str) -> dict[str, str]:
        found = self.checks(*arguments, stage=stage, **variables)
        return {name: check["status"] for name, check in found.items()}


def stand_in(folder: Path, script: str) -> None:
    """Another ``node``: which one this machine has is no matter of these tests."""
    folder.mkdir(exist_ok=True)
    (folder / "node").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "node").chmod(0o755)


@pytest.fixture
def doctor(
    account: ScriptedAws,
    assemblies: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Doctor:
    account.reset()
    account.recover()
    account.client("ssm").put_parameter(Name=BOOTSTRAP, Value="30", Type="String")
    clone = tmp_path / "clone"
    installed = clone / "infra" / "node_modules" / "aws-cdk"
    installed.mkdir(parents=True)
    (clone / "cdk.json").write_text("{}")
    shutil.copy(ROOT / "infra" / "package.json", clone / "infra")
    (installed / "package.json").write_text(json.dumps({"version": PINNED}))
    stand_in(tmp_path / "tools", "echo v24.1.0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    for name in [name for name in os.environ if name.startswith(("AWS_", "VECTORFORGE_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    return Doctor(clone, assemblies, account, monkeypatch, capsys)


def test_it_is_a_command(doctor: Doctor) -> None:
    assembly = str(doctor.assemblies / "prod")
    command = [str(VECTORFORGE), "doctor", "--aws", "--stage", "prod", "--assembly", assembly]
    done = subprocess.run(command, cwd=doctor.clone, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["ok", name] for name in ORDER]


def test_a_stage_with_nat_may_be_deployed_to_an_ordinary_account(doctor: Doctor) -> None:
    found = doctor.checks()
    assert list(found) == ORDER
    assert {check["status"] for check in found.values()} == {"ok"}
    details = {name: check["detail"] for name, check in found.items()}
    assert details["credentials"] == "account 123456789012 as user/moto"
    assert details["region"] == REGION
    assert details["bootstrap"] == "version 30 (at least 6)"
    assert details["vpcs"] == "1 of 5 VPCs in use, 1 more needed"  # moto's accounts have a default VPC
    assert details["addresses"] == "0 of 5 elastic IPs in use, 2 more needed"
    assert details["instances"] == "0 of 40 RDS instances in use, 1 more needed"
    assert details["database"] == f"db.t4g.micro with PostgreSQL 17.9 is offered in {REGION}"
    assert details["bytecode"] == "in all 1 functions"


class TestHostsOfADualStackStage:
    def test_without_ipv6_are_named(self, doctor: Doctor) -> None:
        report = json.loads(doctor.run("--json", stage="dev")[1])
        found = {c["detail"].split()[0]: c for c in report["checks"] if c["name"] == "ipv6"}
        assert found["127.0.0.1"]["status"] == "fail"
        assert "VECTORFORGE_OPENAI_BASE_URL" in found["127.0.0.1"]["detail"]
        assert '"nat"' in found["127.0.0.1"]["remedy"]
        assert found["::1"]["status"] == "ok"
        assert found["no-such-host.invalid"]["status"] == "warn"
        assert {"api.openai.com", "api.anthropic.com"} <= set(found)
        assert {f"sqs.{REGION}.api.aws", f"secretsmanager.{REGION}.api.aws"} <= set(found)

    def test_are_not_looked_up_where_there_is_nat(self, doctor: Doctor) -> None:
        assert "ipv6" not in doctor.checks()

    def test_need_no_address_of_an_elastic_ip(self, doctor: Doctor) -> None:
        assert "addresses" not in doctor.checks(stage="dev")


class TestCredentials:
    def test_that_are_missing(self, doctor: Doctor) -> None:
        doctor.sign_out()
        found = doctor.checks()
        assert list(found) == ORDER[: ORDER.index("credentials") + 1]
        assert found["credentials"]["status"] == "fail"
        assert "AWS_PROFILE" in found["credentials"]["remedy"]

    @pytest.mark.parametrize(
        ("code", "status", "says"),
        [
            ("ExpiredToken", 403, "aws sso login"),
            ("InvalidClientTokenId", 403, "enabled the region"),
            ("SignatureDoesNotMatch", 403, "clock"),
            ("AccessDenied", 403, "sts:GetCallerIdentity"),
            ("InternalFailure", 500, "AWS CLI"),
        ],
    )
    def test_that_are_refused(self, doctor: Doctor, code: str, status: int, says: str) -> None:
        doctor.account.fail(*EVERY, code, status=status)
        found = doctor.checks()["credentials"]
        assert found["status"] == "fail"
        assert code in found["detail"]
        assert says in found["remedy"]

    def test_that_expire_in_the_middle(self, doctor: Doctor) -> None:
        doctor.account.fail("lambda", "GetAccountSettings", "ExpiredTokenException", status=403)
        assert doctor.statuses()["concurrency"] == "fail"

    def test_of_a_profile_that_is_not_there(self, doctor: Doctor) -> None:
        found = doctor.checks(stage="prod", AWS_PROFILE="typo")["credentials"]
        assert (found["status"], "AWS_PROFILE" in found["remedy"]) == ("fail", True)

    def test_of_the_root_user_are_a_warning(self, doctor: Doctor) -> None:
        answer = (
            "<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
            "<GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:root</Arn><Account>123456789012</Account>"
            "<UserId>1</UserId></GetCallerIdentityResult></GetCallerIdentityResponse>"
        )
        doctor.account.answer("sts", "GetCallerIdentity", answer, kind="text/xml")
        assert doctor.statuses()["credentials"] == "warn"


class TestRegion:
    def test_is_chosen_as_the_cdk_command_line_does(self, doctor: Doctor) -> None:
        variables = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-1"}
        assert doctor.checks(stage="prod", **variables)["region"]["detail"] == "eu-west-1"
        found = doctor.checks("--region", "eu-west-3", **variables)
        assert found["region"]["detail"] == "eu-west-3"
        assert found["bootstrap"]["status"] == "fail"  # it was made in another region

    def test_that_is_none(self, doctor: Doctor) -> None:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            doctor.patch.delenv(name)
        found = doctor.checks()
        assert found["region"]["status"] == "fail"
        assert "credentials" not in found

    def test_with_a_typo(self, doctor: Doctor) -> None:
        doctor.account.delay(0.1)
        found = doctor.checks("--region", "eu-centrall-1")["region"]
        assert (found["status"], found["remedy"]) == ("fail", "Did you mean eu-central-1?")

    def test_other_than_the_one_the_stacks_are_bound_to(self, doctor: Doctor) -> None:
        doctor.sign_out()
        found = doctor.checks(stage="bound")["region"]
        assert (found["status"], found["remedy"]) == ("fail", "Give --region us-west-2.")


class TestBootstrap:
    def test_that_never_happened(self, doctor: Doctor) -> None:
        doctor.account.client("ssm").delete_parameter(Name=BOOTSTRAP)
        found = doctor.checks()["bootstrap"]
        assert found["status"] == "fail"
        assert "cdk bootstrap" in found["remedy"]

    @pytest.mark.parametrize("version", ["5", "none"])
    def test_that_is_too_old_or_broken(self, doctor: Doctor, version: str) -> None:
        doctor.account.client("ssm").put_parameter(Name=BOOTSTRAP, Value=version, Overwrite=True)
        assert doctor.statuses()["bootstrap"] == "fail"


class TestQuotas:
    def test_that_are_used_up(self, doctor: Doctor) -> None:
        for number in range(4):  # and the default one
            doctor.account.client("ec2").create_vpc(CidrBlock=f"10.{number}.0.0/16")
        for _ in range(4):
            doctor.account.client("ec2").allocate_address(Domain="vpc")
        doctor.account.allow_database_instances(used=40, limit=40)
        doctor.account.offer_databases(multi_az=False)
        found = doctor.checks()
        for name in ("vpcs", "addresses", "instances", "database"):
            assert found[name]["status"] == "fail", name
        assert found["addresses"]["detail"] == "4 of 5 elastic IPs in use, 2 more needed"
        assert "--quota-code L-F678F1CE --desired-value 10" in found["vpcs"]["remedy"]

    def test_do_not_stop_the_update_of_what_is_there(self, doctor: Doctor) -> None:
        template = {
            "Resources": {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}}}
        }
        doctor.account.client("cloudformation").create_stack(
            StackName="VectorForge-prod-Data", TemplateBody=json.dumps(template)
        )
        for number in range(3):
            doctor.account.client("ec2").create_vpc(CidrBlock=f"10.{number}.0.0/16")
        found = doctor.checks()
        assert found["deployed"]["detail"] == "VectorForge-prod-Data is CREATE_COMPLETE"
        assert found["vpcs"]["detail"] == "5 of 5 VPCs in use, 0 more needed"
        assert found["vpcs"]["status"] == "ok"

    @pytest.mark.parametrize(
        ("limit", "unreserved", "status"), [(1000, 120, "ok"), (1000, 119, "fail"), (10, 10, "fail")]
    )
    def test_of_concurrency(self, doctor: Doctor, limit: int, unreserved: int, status: str) -> None:
        doctor.account.allow_concurrency(limit, unreserved)
        assert doctor.statuses()["concurrency"] == status  # the stage reserves 20

    def test_of_a_young_account_are_a_warning(self, doctor: Doctor, tmp_path: Path) -> None:
        doctor.account.allow_concurrency(10, 10)
        doctor.assemblies = tmp_path  # where nothing says what the stage reserves
        assert doctor.statuses()["concurrency"] == "warn"

    def test_without_a_value_of_their_own_have_the_default(self, doctor: Doctor) -> None:
        missing = json.dumps({"__type": "NoSuchResourceException", "Message": "none"})
        doctor.account.answer("servicequotas", "GetServiceQuota L-0263D0A3", missing, status=400)
        default = json.dumps({"Quota": {"Value": 3.0}})
        doctor.account.answer("servicequotas", "GetAWSDefaultServiceQuota L-0263D0A3", default)
        found = doctor.checks()["addresses"]
        assert found["detail"] == "0 of 3 elastic IPs in use, 2 more needed"


class TestAnAccountThatDoesNotTell:
    def test_is_a_warning_and_no_more(self, doctor: Doctor) -> None:
        refused = {
            "vpcs": ("ec2", "DescribeVpcs", "UnauthorizedOperation"),
            "interfaces": ("ec2", "DescribeNetworkInterfaces", "RequestLimitExceeded"),
            "concurrency": ("lambda", "GetAccountSettings", "TooManyRequestsException"),
            "bootstrap": ("ssm", "GetParameter", "AccessDeniedException"),
            "deployed": ("cloudformation", "DescribeStacks", "Throttling"),
            "database": ("rds", "DescribeOrderableDBInstanceOptions", "AccessDenied"),
        }
        for service, operation, code in refused.values():
            doctor.account.fail(service, operation, code)
        found = doctor.checks()
        assert {name for name, check in found.items() if check["status"] != "ok"} == set(refused)
        for name, (_, _, code) in refused.items():
            assert found[name]["status"] == "warn"
            assert code in found[name]["detail"]
        assert "lambda:GetAccountSettings" not in found["concurrency"]["remedy"]
        assert "ec2:DescribeVpcs" in found["vpcs"]["remedy"]

    def test_since_it_cannot_be_reached(self, doctor: Doctor) -> None:
        found = doctor.checks(stage="prod", AWS_ENDPOINT_URL="http://127.0.0.1:9")["credentials"]
        assert (found["status"], "network" in found["remedy"]) == ("fail", True)

    def test_since_it_closes_the_connection_late(self, doctor: Doctor) -> None:
        doctor.account.delay(1)
        found = doctor.checks()["credentials"]
        assert (found["status"], "network" in found["remedy"]) == ("fail", True)

    def test_since_its_address_is_none(self, doctor: Doctor) -> None:
        assert doctor.statuses(stage="prod", AWS_ENDPOINT_URL="nowhere")["credentials"] == "fail"


class TestLeftovers:
    def test_under_a_name_that_is_needed_stop_a_deployment(self, doctor: Doctor) -> None:
        secrets = doctor.account.client("secretsmanager")
        secrets.create_secret(Name="vectorforge-prod/providers", SecretString="{}")
        secrets.delete_secret(SecretId="vectorforge-prod/providers")  # in thirty days
        doctor.account.client("logs").create_log_group(logGroupName="/aws/lambda/vectorforge-prod")
        doctor.account.client("sqs").create_queue(QueueName="vectorforge-prod-jobs")
        found = doctor.checks()["leftovers"]
        assert found["status"] == "fail"
        assert found["detail"].endswith(" and 2 more")
        assert "make destroy STAGE=prod" in found["remedy"]

    def test_are_not_what_only_begins_alike(self, doctor: Doctor) -> None:
        doctor.account.client("logs").create_log_group(logGroupName="/aws/lambda/vectorforge-prod2")
        doctor.account.client("sqs").create_queue(QueueName="vectorforge-prod-jobs-dead")
        assert doctor.statuses()["leftovers"] == "ok"

    def test_are_not_what_a_deployed_stack_holds(self, doctor: Doctor) -> None:
        queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "vectorforge-prod-jobs"}}
        doctor.account.client("cloudformation").create_stack(
            StackName="VectorForge-prod-Data", TemplateBody=json.dumps({"Resources": {"Queue": queue}})
        )
        assert doctor.statuses()["leftovers"] == "ok"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UPDATE_COMPLETE", "ok"),
        ("UPDATE_ROLLBACK_COMPLETE", "ok"),
        ("ROLLBACK_COMPLETE", "fail"),
        ("UPDATE_ROLLBACK_FAILED", "fail"),
        ("UPDATE_IN_PROGRESS", "fail"),
    ],
)
def test_a_stack_that_takes_no_update_is_found(status: str, expected: str) -> None:
    [check] = check_stacks({"VectorForge-dev-App": DeployedStack(status, {})}, "dev")
    assert (check.status, bool(check.remedy)) == (expected, expected == "fail")


class TestTools:
    @pytest.fixture(autouse=True)
    def signed_out(self, doctor: Doctor) -> None:
        doctor.sign_out()

    @pytest.mark.parametrize(
        ("script", "status"),
        [("echo v18.20.1", "fail"), ("echo v20.20.2", "warn"), ("exit 1", "fail"), ("echo hello", "fail")],
    )
    def test_node(self, doctor: Doctor, tmp_path: Path, script: str, status: str) -> None:
        stand_in(tmp_path / "tools", script)
        found = doctor.checks()["node"]
        assert (found["status"], "Node.js 22" in found["remedy"]) == (status, True)

    def test_no_node(self, doctor: Doctor, tmp_path: Path) -> None:
        assert doctor.checks(stage="prod", PATH=str(tmp_path))["node"]["status"] == "fail"

    def test_a_newer_cdk_that_reads_older_assemblies(self, doctor: Doctor) -> None:
        package = doctor.clone / "infra" / "node_modules" / "aws-cdk" / "package.json"
        package.write_text('{"version": "3.0.0"}')
        found = doctor.checks()["cdk"]
        assert (found["status"], found["remedy"]) == ("fail", "Run `npm ci --prefix infra`.")
        package.unlink()
        assert PINNED in doctor.checks()["cdk"]["detail"]

    def test_outside_of_a_clone(self, doctor: Doctor, tmp_path: Path) -> None:
        doctor.clone = tmp_path
        assert doctor.checks()["cdk"]["status"] == "fail"


class TestTheAssembly:
    @pytest.fixture(autouse=True)
    def signed_out(self, doctor: Doctor) -> None:
        doctor.sign_out()

    @pytest.mark.parametrize("content", [None, "{", "[]", '{"artifacts": {}}'])
    def test_that_cannot_be_used_leaves_a_warning(
        self, doctor: Doctor, tmp_path: Path, content: str | None
    ) -> None:
        if content is not None:
            (tmp_path / "prod").mkdir()
            (tmp_path / "prod" / "manifest.json").write_text(content)
        doctor.assemblies = tmp_path
        found = doctor.checks()
        assert (found["stacks"]["status"], "bytecode" in found) == ("warn", False)
        assert "make synth STAGE=prod" in found["stacks"]["remedy"]

    def test_of_another_stage_is_not_this_one_s(self, doctor: Doctor, tmp_path: Path) -> None:
        shutil.copytree(doctor.assemblies / "dev", tmp_path / "prod")
        doctor.assemblies = tmp_path
        found = doctor.checks()["stacks"]
        assert "VectorForge-dev-Data" in found["detail"]

    def test_without_bytecode_is_slow(self, doctor: Doctor, tmp_path: Path) -> None:
        copied: Path = shutil.copytree(doctor.assemblies / "prod", tmp_path / "prod")
        for file in copied.rglob("*.pyc"):
            file.rename(file.with_name("handler.cpython-311.pyc"))
        doctor.assemblies = tmp_path
        found = doctor.checks()["bytecode"]
        assert (found["status"], "uv python install 3.14" in found["remedy"]) == ("warn", True)


def test_a_sum_of_what_failed_ends_the_report(doctor: Doctor) -> None:
    doctor.account.allow_database_instances(used=40, limit=40)
    code, printed = doctor.run()
    assert code == 1
    assert printed.splitlines()[-1] == f"1 of {len(ORDER)} checks failed."


def test_nothing_is_changed_in_the_account(doctor: Doctor) -> None:
    doctor.run()
    operations = {operation for _, operation in doctor.account.calls}
    assert operations
    assert all(operation.startswith(("Describe", "Get", "List")) for operation in operations), operations
