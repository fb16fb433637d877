"""Run ``make synth``, ``deploy`` and ``destroy`` with a stand-in for the CDK.

The stand-in is a program that records its calls, and changes the account as the CDK would.
"""

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.aws.scripted_aws import CANARY, ScriptedAws

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
    outputs = {{
        stack: {{
            "Example": f"curl {{stack}}", "ExportsOutputRef": "none", "KeyCommand": f"put-secret {{stack}}"
        }} for stack in stacks
    }}
    Path(option("--outputs-file")).write_text(json.dumps(outputs))
if command == "destroy":
    import boto3

    cloudformation = boto3.client("cloudformation")
    for stack in cloudformation.describe_stacks()["Stacks"]:
        cloudformation.delete_stack(StackName=stack["StackName"])
"""

MIGRATE = {"Handler": "functions.migrate.handler.handler", "Code": {"S3Key": "c0de.zip"}}
TEMPLATES = {
    "Data": {
        "Resources": {},
        "Outputs": {"KeyCommand": {"Description": "Stores a key", "Value": ""}},
    },
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
        """Run a command, in a terminal if there is input."""
        command = [sys.executable, "-m", f"infra.deployment.{module}", *arguments]
        command += ["--cdk", str(self.folder / "cdk"), "--assembly", str(self.folder / "cdk.out")]
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
        """Let the CDK fail at a command once."""
        (self.folder / command).touch()

    @property
    def calls(self) -> list[list[str]]:
        """Return region and arguments of each call of the CDK."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def called(self) -> list[str]:
        """Return the CDK's commands in order."""
        return [call[1] for call in self.calls]


def write_stand_in(folder: Path) -> None:
    """Write the program, and an assembly for each stage."""
    (folder / "cdk").write_text(CDK.format(python=sys.executable))
    (folder / "cdk").chmod(0o755)
    for stage in ("dev", "prod"):
        _write_assembly(folder, stage)


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
