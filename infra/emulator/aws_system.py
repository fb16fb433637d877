"""Running system of what a stack deploys: emulator, schema, functions, event sources, front door."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from infra.emulator.aws_emulator import REGION, free_port, moto
from infra.emulator.aws_functions import (
    INGEST_TIMEOUT_S,
    LOG_WRITER_TIMEOUT_S,
    configure_functions,
    provider_keys,
)
from infra.emulator.aws_resources import AwsResources, create_resources, upload
from infra.emulator.lambda_service.front_doors import FunctionUrl
from infra.emulator.lambda_service.function_configuration import (
    FunctionConfiguration,
    TooManyRequestsError,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.invocation import FunctionFailedError
from infra.emulator.lambda_service.lambda_function import LambdaFunction
from infra.emulator.lambda_service.queue_event_source import BatchResult, QueueEventSource
from vectorforge.errors import ConfigurationError
from vectorforge.local.laptop import LocalSetup

_QUERY_CONCURRENCY = 3
"""Concurrent queries; each process loads the model."""
_SCHEDULE_S = 60.0
"""Seconds between two polls for jobs without a message."""


@dataclass(frozen=True, slots=True)
class LocalPaths:
    """Folders and ports.

    Raises:
        OSError: The folders cannot be made.
    """

    data: Path
    """Logs."""
    port: int = 8000
    """Port of the API; 0 takes a free one."""
    aws_port: int = 4566
    """Port of the emulator."""

    def __post_init__(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)

    @property
    def logs(self) -> Path:
        """Folder with one log for each function and for the emulator."""
        return self.data / "logs"


@dataclass(frozen=True, slots=True)
class RunningStack:
    """Addresses and resources of a running system."""

    url: str
    """URL of the API and the page: the query function's URL."""
    endpoint_url: str
    """URL of the AWS services."""
    resources: AwsResources
    keys: tuple[str, ...]
    """Names of the settings in the secret."""
    migrations: tuple[str, ...]
    """Names of the migrations just applied."""


@asynccontextmanager
async def running_system(
    setup: LocalSetup,
    places: LocalPaths,
    *,
    endpoint_url: str | None = None,
    sample: Mapping[str, Path] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[RunningStack]:
    """Start everything, and stop it in reverse order.

    Args:
        setup: Settings with a database in them.
        places: Folders and ports.
        endpoint_url: URL of a running emulator; None starts one.
        sample: Files to upload and ingest before this yields, by key.
        note: Called with each step.

    Raises:
        ConfigurationError: A prerequisite is missing or a start failed; the text says what to do.
    """
    free_port(places.port, "Choose another with --port.")  # reported before the functions start
    async with AsyncExitStack() as stack:
        note("Starting the emulator of AWS services ...")
        if endpoint_url is None:
            log = places.logs / "emulator.log"
            log.unlink(missing_ok=True)
            endpoint_url = await stack.enter_async_context(moto(places.aws_port, log))
        keys = provider_keys(setup.config)
        os.environ["AWS_ENDPOINT_URL"] = endpoint_url  # where localstack-client looks first
        resources = await asyncio.to_thread(
            create_resources,
            keys,
            log_writer_timeout_s=LOG_WRITER_TIMEOUT_S,
            ingest_timeout_s=INGEST_TIMEOUT_S,
        )
        if setup.migrator_url is None:
            raise ConfigurationError(
                "VECTORFORGE_MIGRATOR_DATABASE_URL is required with an external database."
            )
        functions = configure_functions(
            setup.config, setup.migrator_url, resources, endpoint_url=endpoint_url
        )
        note("Migrating ...")
        migrations = await _migrate(functions.migrate, places)
        note("Starting the functions ...")
        ingestion = SampleProgress()
        log_writer = await _function(stack, functions.log_writer, places)
        ingest = await _function(stack, functions.ingest, places)
        query = await _function(stack, functions.query, places, _QUERY_CONCURRENCY)
        await _source(stack, log_writer, resources.query_log_queue_url, endpoint_url, batch_size=100)
        await _source(stack, ingest, resources.ingestion_queue_url, endpoint_url, progress=ingestion)
        await _warm(query, places)
        door = await stack.enter_async_context(FunctionUrl(query, port=places.port))
        schedule = asyncio.create_task(_schedule(ingest))
        stack.push_async_callback(_end, schedule)
        if sample:
            note("Uploading and ingesting the sample ...")
            await asyncio.to_thread(upload, resources.uploads_bucket, sample)
            await ingestion.reach(len(sample), note, _log_file(functions.ingest, places))
        yield RunningStack(door.url, endpoint_url, resources, tuple(keys), migrations)


class SampleProgress:
    """Counter of processed messages; the next batch is waited for at most ``patience_s``."""

    def __init__(self, patience_s: float = 120.0) -> None:
        self._done = 0
        self._changed = asyncio.Condition()
        self._patience_s = patience_s

    async def add(self, batch: BatchResult) -> None:
        """For ``on_batch``."""
        async with self._changed:
            self._done += len(batch.records) - len(batch.failed)
            self._changed.notify_all()

    async def reach(self, count: int, note: Callable[[str], None], log: Path) -> None:
        """Wait for a number of messages, and note each batch; stop waiting when none is processed in time."""
        async with self._changed:
            while self._done < count:
                try:
                    async with asyncio.timeout(self._patience_s):
                        await self._changed.wait()
                except TimeoutError:
                    note(
                        f"Only {self._done} of the {count} files of the sample were ingested, none in the "
                        f"last {self._patience_s:g} s. The others are retried while this runs; see {log}, or "
                        "start without the sample: --no-sample."
                    )
                    return
                note(f"Ingested {min(self._done, count)} of {count} files.")


async def _migrate(configuration: FunctionConfiguration, places: LocalPaths) -> tuple[str, ...]:
    async with FunctionProcess(configuration, on_log=_log_to(configuration, places)) as process:
        invocation = await process.invoke({"action": "migrate"})
        try:
            result = await invocation.result()
        except FunctionFailedError as exc:
            raise ConfigurationError(f"The migrate function failed: {exc}") from exc
    return tuple(result["applied"])


async def _function(
    stack: AsyncExitStack, configuration: FunctionConfiguration, places: LocalPaths, concurrency: int = 1
) -> LambdaFunction:
    function = LambdaFunction(configuration, concurrency=concurrency, on_log=_log_to(configuration, places))
    return await stack.enter_async_context(function)


async def _source(
    stack: AsyncExitStack,
    function: LambdaFunction,
    queue_url: str,
    endpoint_url: str,
    *,
    batch_size: int = 10,
    progress: SampleProgress | None = None,
) -> None:
    source = QueueEventSource(
        function,
        queue_url,
        endpoint_url=endpoint_url,
        region=REGION,
        batch_size=batch_size,
        maximum_concurrency=1,
        on_batch=progress.add if progress else None,
    )
    await stack.enter_async_context(source)


async def _warm(function: LambdaFunction, places: LocalPaths) -> None:
    """Start one process in advance: wrong settings fail now, and the first query has no cold start."""
    try:
        await function.processes[0].start()
    except FunctionFailedError as exc:
        file = _log_file(function.configuration, places)
        raise ConfigurationError(f"The query function failed to start: {exc}; see {file}.") from exc


async def _schedule(ingest: LambdaFunction) -> None:
    """Invoke the ingest function periodically, as EventBridge does, to find jobs without a message."""
    while True:
        with contextlib.suppress(TooManyRequestsError):  # it works
            await ingest.invoke({"source": "aws.events", "detail-type": "Scheduled Event"})
        await asyncio.sleep(_SCHEDULE_S)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _log_file(configuration: FunctionConfiguration, places: LocalPaths) -> Path:
    return places.logs / f"{configuration.name}.log"


def _log_to(configuration: FunctionConfiguration, places: LocalPaths) -> Callable[[str], None]:
    """Return a writer of lines to the function's log, which it empties first."""
    file = _log_file(configuration, places)
    file.write_text("")

    def write(line: str) -> None:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"{line}\n")

    return write
