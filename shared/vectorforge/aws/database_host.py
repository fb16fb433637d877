"""Hosts for long work on the database: EC2 instances that each run one task, and then terminate.

Their launch template holds everything else: network, role, tools and the script that runs the task
(infra/functions/operator_host.py). A task is repeatable, so a lost host is replaced by another one.
"""

from typing import Any, Final, Literal, TypeAlias

from vectorforge.aws.clients import AwsClients, is_temporary
from vectorforge.errors import ConfigurationError, VectorForgeError

Task: TypeAlias = Literal["index", "migrate"]
"""index: build the missing vector indexes. migrate: apply the pending migrations, and index unread words."""

TASK_TAG: Final = "vectorforge-task"
"""Tag of a host with its task, which the host itself reads; ``make operator`` sets "session"."""


class DatabaseHosts:
    """Hosts of one stage, each shown by its ``id``, ``task`` and ``since`` (start in ISO 8601).

    Args:
        template: Id of the launch template.
    """

    def __init__(self, template: str) -> None:
        self._template = template
        self._clients = AwsClients(connect_timeout_s=2.0, read_timeout_s=20.0, max_attempts=2)

    def running(self, *tasks: Task) -> list[dict[str, str]]:
        """Return the hosts with one of these tasks that have not ended.

        Raises:
            ConfigurationError: This process may not list them.
            VectorForgeError: EC2 does not respond.
        """
        wanted = {
            "tag:aws:ec2launchtemplate:id": [self._template],
            f"tag:{TASK_TAG}": list(tasks),
            "instance-state-name": ["pending", "running"],
        }
        filters = [{"Name": name, "Values": values} for name, values in wanted.items()]
        found = self._call("describe_instances", Filters=filters)["Reservations"]
        return [_shown(instance) for reservation in found for instance in reservation["Instances"]]

    def start(self, task: Task) -> dict[str, str]:
        """Start a host for a task, or return the one that is running it.

        Raises:
            ConfigurationError: This process may not start it.
            VectorForgeError: EC2 does not respond, or has no capacity.
        """
        for host in self.running(task):
            return host
        started = self._call(
            "run_instances",
            LaunchTemplate={"LaunchTemplateId": self._template, "Version": "$Latest"},
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": TASK_TAG, "Value": task}]}],
        )
        return _shown(started["Instances"][0])

    def _call(self, operation: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._clients.get("ec2"), operation)(**arguments)
        except ClientError as exc:
            kind = VectorForgeError if is_temporary(exc) else ConfigurationError
            raise kind(f"EC2 rejected {operation} ({exc.response['Error']['Code']}).") from exc
        except BotoCoreError as exc:
            raise VectorForgeError(f"EC2 does not respond ({type(exc).__name__}).") from exc


def _shown(instance: Any) -> dict[str, str]:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    since = instance["LaunchTime"].isoformat()
    return {"id": instance["InstanceId"], "task": tags.get(TASK_TAG, ""), "since": since}
