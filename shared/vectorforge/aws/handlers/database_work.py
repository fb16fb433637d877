"""Work of the migrate function on the database, and its continuation on a host if it takes too long."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

from pydantic import SecretStr

from vectorforge.aws.clients import AwsClients, is_temporary
from vectorforge.aws.database_login import as_migrator
from vectorforge.config import VectorForgeConfig
from vectorforge.db.login import login_passwords
from vectorforge.db.schema import migrate as migrations
from vectorforge.errors import (
    ConfigurationError,
    ConflictError,
    DeadlineExceededError,
    InvalidInputError,
    VectorForgeError,
)
from vectorforge.types import EXACT_SCAN_LIMIT

logger = logging.getLogger(__name__)

T = TypeVar("T")
Task: TypeAlias = Literal["index", "migrate"]
"""index: build the missing vector indexes. migrate: apply the pending migrations, and index unread words."""

TASK_TAG: Final = "vectorforge-task"
"""Tag of a host with its task, which the host itself reads; ``make operator`` sets "session"."""

ACTIONS = ("migrate", "check", "index", "status", "start", "ended", "restored")
"""Methods of ``DatabaseWork`` that an event may name."""
_OUTPUT_CHARS = 4_000
"""Most of a host's output that is logged."""
_INSTANCE = re.compile(r"arn:[a-z-]+:rds:[a-z0-9-]+:\d{12}:(?:db|cluster):([a-z][a-z0-9-]{0,62})")
_FIRST_LABEL = re.compile(r"(://(?:[^@/]*@)?)[^./:?@]+(?=[.:/?]|$)")
_ROWS = (
    "SELECT relname, greatest(reltuples, 0)::bigint FROM pg_catalog.pg_class"
    " WHERE relkind = 'r' AND relnamespace = 'vectorforge'::regnamespace ORDER BY relname"
)
"""Estimates of all tenants' rows, which row-level security hides from a count."""


class DatabaseWork:
    """Work within the time of one invocation.

    Args:
        config: Settings with the migrator's URL.
        seconds: Time limit.
        of_stack: Accept a schema that a newer version has migrated, which also serves this one.
    """

    def __init__(self, config: VectorForgeConfig, *, seconds: float, of_stack: bool = False) -> None:
        self._config = config
        template = config.database.operator_template
        self._hosts = DatabaseHosts(template) if template else None
        self._seconds = seconds
        self._of_stack = of_stack

    async def check(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return the names of pending migrations."""
        pending = await self._in_time(migrations.pending)
        return {"pending": [migration.name for migration in pending]}

    async def migrate(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Apply the pending migrations, and return their names.

        Raises:
            DeadlineExceededError: It took too long and was rolled back; a host, if there are any, repeats it.
        """
        if self._of_stack and await self._running("migrate") and await self._in_time(_is_current):
            return {"applied": []}  # a stack that is rolled back must not wait for the host

        async def apply(conninfo: str) -> list[str]:
            applied = await migrations.migrate(
                conninfo,
                login_passwords=login_passwords(self._config.database),
                tokens=self._config.database.database_auth == "iam",
                on_progress=lambda migration: logger.info("Applying %s", migration.name),
                accept_newer=self._of_stack,
                wait_s=self._seconds,
            )
            return [migration.name for migration in applied]

        try:
            return {"applied": await self._in_time(apply)}
        except DeadlineExceededError:
            if self._hosts is None:
                raise
        host = await asyncio.to_thread(self._hosts.start, "migrate")
        raise DeadlineExceededError(
            f"The migration needs more than {self._seconds:.0f} s and continues on the host {host['id']}. "
            'Deploy again when {"action": "status"} shows no host.'
        )

    async def index(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Build the missing vector indexes; on a host if they take longer than half of the time.

        Raises:
            DeadlineExceededError: It took too long, and there are no hosts; the unfinished index is dropped.
        """
        from vectorforge.db.schema.index_building import BuildResources, build_indexes, missing_build_s

        if await self._running("index", "migrate"):
            return {"built": [], **await self._in_progress()}

        async def build(conninfo: str) -> list[str]:
            needed_s = await missing_build_s(conninfo, larger_than=EXACT_SCAN_LIMIT) if self._hosts else 0.0
            if needed_s > self._seconds / 2:
                raise DeadlineExceededError("The missing indexes need a host.")
            resources = BuildResources(timeout_s=self._seconds)
            built = await build_indexes(conninfo, larger_than=EXACT_SCAN_LIMIT, resources=resources)
            return [index.space for index in built]

        try:
            return {"built": await as_migrator(self._config.database, build)}
        except ConflictError:
            return {"built": [], **await self._in_progress()}
        except DeadlineExceededError:
            if self._hosts is None:
                raise
        return {"built": [], **await self.start({"task": "index"})}

    async def status(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return pending migrations, index builds with their progress, and hosts."""
        return {**await self.check(event), **await self._in_progress()}

    async def start(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Start a host for ``task``, unless one is running it.

        Raises:
            InvalidInputError: The task is unknown.
            ConfigurationError: This stage has no hosts.
        """
        task = _task(event)
        if self._hosts is None:
            raise ConfigurationError("This stage has no hosts: VECTORFORGE_OPERATOR_TEMPLATE is not set.")
        host = await asyncio.to_thread(self._hosts.start, task)
        logger.warning("The task %s runs on the host %s", task, host["id"])
        return {"hosts": [host]}

    async def ended(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Log the end of a host's task.

        Raises:
            InvalidInputError: The task is unknown.
            VectorForgeError: The task failed, which the alarm on this function's errors reports.
        """
        task, code = _task(event), event.get("exit_code")
        logger.info("A host ended the task %s: %s", task, str(event.get("output", ""))[-_OUTPUT_CHARS:])
        if code != 0:
            raise VectorForgeError(f"The task {task} failed on a host (exit code {code}); see the log.")
        return {"ended": task}

    async def restored(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return pending migrations and estimated rows by table of a restored ``instance``, an ARN.

        It may be a cluster of Aurora that has an instance.

        Raises:
            InvalidInputError: The ARN is malformed.
            VectorForgeError: The database has no schema of VectorForge.
            DatabaseUnavailableError: It cannot be reached.
        """
        database, url = self._config.database, self._config.database.migrator_database_url
        if url is not None:
            other = SecretStr(restored_url(url.get_secret_value(), str(event.get("instance"))))
            database = database.model_copy(update={"migrator_database_url": other})

        async def read(conninfo: str) -> dict[str, Any]:
            lacking = await migrations.pending(conninfo, accept_newer=True)
            if len(lacking) == len(migrations.read_migrations()):
                raise VectorForgeError("The restored database has no schema of VectorForge.")
            async with migrations.migrator_connection(conninfo) as connection:
                rows = dict(await (await connection.execute(_ROWS)).fetchall())
            return {"pending": [migration.name for migration in lacking], "rows": rows}

        found = await asyncio.wait_for(as_migrator(database, read), self._seconds)
        logger.info("A restored database was read: %s", found)
        return found

    async def _in_progress(self) -> dict[str, Any]:
        from vectorforge.db.schema.index_building import builds_in_progress

        building = [asdict(progress) for progress in await self._in_time(builds_in_progress)]
        return {"building": building, "hosts": await self._running("index", "migrate")}

    async def _running(self, *tasks: Task) -> list[dict[str, str]]:
        return await asyncio.to_thread(self._hosts.running, *tasks) if self._hosts else []

    async def _in_time(self, work: Callable[[str], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await as_migrator(self._config.database, work)
        except TimeoutError:
            raise DeadlineExceededError(
                f"The migration timed out after {self._seconds:.0f} s; `vectorforge migrate` has no limit."
            ) from None


def restored_url(url: str, arn: str) -> str:
    """Return the URL of another database of the account and region, whose hosts differ in the first label.

    https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/CHAP_CommonTasks.Connect.EndpointAndPort.html

    Raises:
        InvalidInputError: ``arn`` names no instance or cluster of RDS.
    """
    named = _INSTANCE.fullmatch(arn)
    if named is None:
        raise InvalidInputError(
            "instance must be the ARN of an instance or a cluster of RDS.", field="instance"
        )
    return _FIRST_LABEL.sub(rf"\g<1>{named[1]}", url, count=1)


def _task(event: Mapping[str, Any]) -> Task:
    if event.get("task") not in get_args(Task):
        raise InvalidInputError(f"task must be one of: {', '.join(get_args(Task))}.", field="task")
    return cast("Task", event["task"])


async def _is_current(conninfo: str) -> bool:
    return not await migrations.pending(conninfo, accept_newer=True)


class DatabaseHosts:
    """Hosts of one stage: EC2 instances that each run one task, and then terminate.

    Their launch template holds everything else: network, role, tools and the script that runs the task
    (infra/functions/operator_host.py). A task is repeatable, so a lost host is replaced by another one. Each
    is shown by its ``id``, ``task`` and ``since`` (start in ISO 8601).

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
