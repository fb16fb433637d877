"""``make operator``: opens a shell with the tools on a host in the stage's VPC, through Session Manager.

    make operator STAGE=prod
    make operator STAGE=prod ARGS="--task index"    # work without an operator; --status shows it

The host is started for the session, and terminated at its end or after eight hours. Needs the AWS command
line with its plugin for Session Manager. Exit codes: 0 done; 1 AWS failed; 2 the command line is wrong, or a
program is missing; 130 interrupted.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from infra.deployment.cdk_command import DeploymentError, aws_session, guarded, stage_parser
from infra.settings import STAGES
from infra.stage_settings import HOST_TASK_TAG, StageSettings

_PLUGIN = "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
_WAIT_S: Final = 300
_LOOK_S: Final = 3
_SHELL: Final = ["--document-name", "AWS-StartInteractiveCommand", "--parameters", "command=sudo --login"]


class Operator:
    """Hosts of one stage as its operator uses them.

    Args:
        stage: The stage's settings.
        session: Session of boto3.
    """

    def __init__(self, stage: StageSettings, session: Any) -> None:
        self._stage = stage
        self._session = session
        self._template = f"{stage.prefix}-operator"

    def session(self, *, keep: bool) -> None:
        """Open a shell on a host, which is terminated afterwards unless it is kept.

        Raises:
            DeploymentError: A program is missing, or the host does not become ready.
        """
        aws = _program("aws", "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html")
        _program("session-manager-plugin", _PLUGIN)
        host = self._running() or self._start()
        sys.stdout.write(
            f"{host}: `vectorforge`, `as-owner psql` and `as-owner pg_dump` work there as soon as they are "
            "installed; `tail -f /var/log/cloud-init-output.log` shows that. It ends after eight hours.\n"
        )
        sys.stdout.flush()
        try:
            self._wait_for_agent(host)
            target = ["--region", self._session.region_name, "--target", host]
            command = [aws, "ssm", "start-session", *target, *_SHELL]
            subprocess.run(command, check=False)  # noqa: S603 - our own words
        finally:
            if keep:
                sys.stdout.write(f"{host} is kept; end it with `make operator ARGS=--end`.\n")
            else:
                self.end()

    def end(self) -> None:
        """Terminate the hosts of sessions; hosts with tasks go on."""
        while host := self._running():
            self._session.client("ec2").terminate_instances(InstanceIds=[host])
            sys.stdout.write(f"{host} is terminated.\n")

    def invoke(self, **event: str) -> None:
        """Invoke the migrate function, and print its answer.

        Raises:
            DeploymentError: The function failed.
        """
        name = f"{self._stage.prefix}-migrate:live"
        payload = json.dumps(event).encode()
        done = self._session.client("lambda").invoke(FunctionName=name, Payload=payload)
        answer = json.loads(done["Payload"].read())
        if "FunctionError" in done:
            raise DeploymentError(f"{name} failed: {answer.get('errorMessage')}")
        sys.stdout.write(f"{json.dumps(answer, indent=2)}\n")

    def _running(self) -> str | None:
        """Return a host of a session that has not ended, or None."""
        wanted = {
            f"tag:{HOST_TASK_TAG}": "session",
            "tag:Name": self._template,
            "instance-state-name": "pending,running",
        }
        filters = [{"Name": name, "Values": value.split(",")} for name, value in wanted.items()]
        found = self._session.client("ec2").describe_instances(Filters=filters)
        hosts = [instance["InstanceId"] for group in found["Reservations"] for instance in group["Instances"]]
        return hosts[0] if hosts else None

    def _start(self) -> str:
        tags = [{"Key": HOST_TASK_TAG, "Value": "session"}]
        started = self._session.client("ec2").run_instances(
            LaunchTemplate={"LaunchTemplateName": self._template, "Version": "$Latest"},
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        return str(started["Instances"][0]["InstanceId"])

    def _wait_for_agent(self, host: str) -> None:
        filters = [{"Key": "InstanceIds", "Values": [host]}]
        until = time.monotonic() + _WAIT_S
        while True:
            found = self._session.client("ssm").describe_instance_information(Filters=filters)
            if any(one.get("PingStatus") == "Online" for one in found["InstanceInformationList"]):
                return
            if time.monotonic() > until:
                raise DeploymentError(
                    f"{host} did not reach Systems Manager within {_WAIT_S} s; its console output "
                    f"shows why: aws ec2 get-console-output --latest --output text --instance-id {host}"
                )
            time.sleep(_LOOK_S)


def _program(name: str, page: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise DeploymentError(f"The program {name} is missing: {page}", exit_code=2)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = stage_parser("infra.deployment.operator", __doc__.partition("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the host running after the session")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--task",
        choices=["index", "migrate"],
        help="start a host that builds missing vector indexes or applies pending migrations, then ends",
    )
    instead.add_argument("--status", action="store_true", help="show pending migrations, builds and hosts")
    instead.add_argument("--end", action="store_true", help="terminate the hosts of sessions")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Open a session, or do what the command line says instead; return the exit code."""
    options = _parser().parse_args(arguments)

    def work() -> None:
        operator = Operator(STAGES[options.stage], aws_session(options.region))
        if options.task:
            operator.invoke(action="start", task=options.task)
        elif options.status:
            operator.invoke(action="status")
        elif options.end:
            operator.end()
        else:
            operator.session(keep=options.keep)

    return guarded(work)


if __name__ == "__main__":
    sys.exit(main())
