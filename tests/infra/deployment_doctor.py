"""``infra.doctor`` in a clone, over a cloud assembly of CDK and an account over HTTP."""

import json
import shutil
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

from infra.doctor.__main__ import main
from tests.support.aws.scripted_aws import CANARY, ScriptedAws

ROOT = Path(__file__).parents[2]
PINNED = json.loads((ROOT / "infra" / "package.json").read_text())["devDependencies"]["aws-cdk"]
BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
ORDER = [
    "node", "cdk", "stacks", "bytecode", "region", "credentials", "deployed", "leftovers", "bootstrap",
    "concurrency", "vpcs", "addresses", "interfaces", "instances", "database",
]  # fmt: skip


def synthesize(folder: Path, stage: str, *, nat: bool, region: str | None = None) -> None:
    """Write a stage's stacks in CDK's own format, with the resources that the checks read."""
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
    version = rds.PostgresEngineVersion.VER_17
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


def make_clone(folder: Path) -> Path:
    """Write the files of a clone that the checks read."""
    installed = folder / "infra" / "node_modules" / "aws-cdk"
    installed.mkdir(parents=True)
    (folder / "cdk.json").write_text("{}")
    shutil.copy(ROOT / "infra" / "package.json", folder / "infra")
    (installed / "package.json").write_text(json.dumps({"version": PINNED}))
    return folder


def stand_in(folder: Path, script: str) -> None:
    """Write a fake ``node``, so that the tests do not depend on this machine's."""
    folder.mkdir(exist_ok=True)
    (folder / "node").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "node").chmod(0o755)


@dataclass
class Doctor:
    """Runs the command in a clone: a folder with the files that the checks read."""

    clone: Path
    assemblies: Path
    account: ScriptedAws
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def sign_out(self) -> None:
        """Sign out: only checks without an account run then."""
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self.patch.delenv(name)

    def run(self, *arguments: str, stage: str = "prod", **variables: str) -> tuple[int, str]:
        """Run the command; return exit code and stdout."""
        with self.patch.context() as patch:
            patch.chdir(self.clone)
            for name, value in variables.items():
                patch.setenv(name, value)
            assembly = str(self.assemblies / stage)
            code = main(["--stage", stage, "--assembly", assembly, *arguments])
        printed = self.capsys.readouterr()
        assert "Traceback" not in printed.err
        for secret in (CANARY, "testing"):  # the latter has the keys of ``aws_environment``
            assert secret not in printed.out + printed.err
        return code, printed.out

    def checks(self, *arguments: str, stage: str = "prod", **variables: str) -> dict[str, dict[str, str]]:
        """Return the last check of each name."""
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
