"""Everything that a stack deploys, running: emulator, schema, functions, event sources, front door."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from infra.emulator.aws_emulator import REGION, free_port, localstack, moto
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

Emulator: TypeAlias = Literal["moto", "localstack"]

_QUERY_CONCURRENCY = 3
"""Questions at one time; each process holds a model of its own."""
_SCHEDULE_S = 60.0
"""Between two looks for jobs that nobody announced."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are to be, and are to be kept.

    Raises:
        OSError: The folders cannot be made.
    """

    data: Path
    """Logs."""
    cache: Path
    """What can be made again: LocalStack's installation."""
    port: int = 8000
    """Of the API; 0 takes a free one."""
    aws_port: int = 4566
    """Of the emulator."""

    def __post_init__(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)

    @property
    def logs(self) -> Path:
        """One file for each function and for the emulator, of this run."""
        return self.data / "logs"


@dataclass(frozen=True, slots=True)
class System:
    """What runs, by address."""

    url: str
    """Of the API and the page: the query function's URL."""
    endpoint_url: str
    """Of AWS services."""
    resources: AwsResources
    keys: tuple[str, ...]
    """Names of the settings that are in the secret."""
    migrations: tuple[str, ...]
    """Names of those just applied."""


@asynccontextmanager
async def running_system(
    setup: LocalSetup,
    places: Places,
    *,
    emulator: Emulator = "moto",
    endpoint_url: str | None = None,
    sample: Mapping[str, Path] | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[System]:
    """Start all of it, and stop it in the opposite order.

    Args:
        setup: Settings with a database in them.
        places: Folders and ports.
        emulator: Which one to start.
        endpoint_url: Of one that runs already; then none is started.
        sample: Files to upload, by key; they are ingested when this gives.
        note: Told what is being done.

    Raises:
        ConfigurationError: Something is missing, or does not start; the text says what to do.
    """
    free_port(places.port, "Choose another with --port.")  # told now rather than after the functions' start
    async with AsyncExitStack() as stack:
        note("Starting the emulator of AWS services ...")
        if endpoint_url is None:
            log = places.logs / "emulator.log"
            log.unlink(missing_ok=True)
            started = (
                moto(places.aws_port, log)
                if emulator == "moto"
                else localstack(places.aws_port, places.cache, log)
            )
            endpoint_url = await stack.enter_async_context(started)
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
                "With a database of your own, set VECTORFORGE_MIGRATOR_DATABASE_URL, too."
            )
        functions = configure_functions(
            setup.config, setup.migrator_url, resources, endpoint_url=endpoint_url
        )
        note("Migrating ...")
        migrations = await _migrate(functions.migrate, places)
        note("Starting the functions ...")
        ingestion = _Progress()
        log_writer = await _function(stack, functions.log_writer, places)
        ingest = await _function(stack, functions.ingest, places)
        query = await _function(stack, functions.query, places, _QUERY_CONCURRENCY)
        await _source(stack, log_writer, resources.query_log_queue_url, endpoint_url, batch_size=100)
        await _source(stack, ingest, resources.ingestion_queue_url, endpoint_url, progress=ingestion)
        await _warm(query, places)
        door = await _listen(stack, query, places.port)
        schedule = asyncio.create_task(_schedule(ingest))
        stack.push_async_callback(_end, schedule)
        if sample:
            note("Uploading and ingesting the sample ...")
            await asyncio.to_thread(upload, resources.uploads_bucket, sample)
            await ingestion.reach(len(sample))
        yield System(door.url, endpoint_url, resources, tuple(keys), migrations)


class _Progress:
    """Counts messages that are done with."""

    def __init__(self, patience_s: float = 120.0) -> None:
        self._done = 0
        self._changed = asyncio.Condition()
        self._patience_s = patience_s

    async def add(self, batch: BatchResult) -> None:
        """For ``on_batch``."""
        async with self._changed:
            self._done += len(batch.records) - len(batch.failed)
            self._changed.notify_all()

    async def reach(self, count: int) -> None:
        """Wait for so many, or until patience ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s), self._changed:
                await self._changed.wait_for(lambda: self._done >= count)


async def _migrate(configuration: FunctionConfiguration, places: Places) -> tuple[str, ...]:
    async with FunctionProcess(configuration, on_log=_log_to(configuration, places)) as process:
        invocation = await process.invoke({"action": "migrate"})
        try:
            result = await invocation.result()
        except FunctionFailedError as exc:
            raise ConfigurationError(f"The migrate function failed: {exc}") from exc
    return tuple(result["applied"])


async def _function(
    stack: AsyncExitStack, configuration: FunctionConfiguration, places: Places, concurrency: int = 1
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
    progress: _Progress | None = None,
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


async def _warm(function: LambdaFunction, places: Places) -> None:
    """Start one process ahead, so that a wrong setting is told now and the first question does not wait."""
    try:
        await function.processes[0].start()
    except FunctionFailedError as exc:
        file = _log_file(function.configuration, places)
        raise ConfigurationError(f"The query function does not start: {exc}; see {file}.") from exc


async def _listen(stack: AsyncExitStack, function: LambdaFunction, port: int) -> FunctionUrl:
    return await stack.enter_async_context(FunctionUrl(function, response_mode="stream", port=port))


async def _schedule(ingest: LambdaFunction) -> None:
    """The rule that wakes the ingest function to find jobs whose message was lost."""
    while True:
        with contextlib.suppress(TooManyRequestsError):  # it works
            await ingest.invoke({"source": "aws.events", "detail-type": "Scheduled Event"})
        await asyncio.sleep(_SCHEDULE_S)


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _log_file(configuration: FunctionConfiguration, places: Places) -> Path:
    return places.logs / f"{configuration.name}.log"


def _log_to(configuration: FunctionConfiguration, places: Places) -> Callable[[str], None]:
    """Writes lines into the function's file, which is empty at first."""
    file = _log_file(configuration, places)
    file.write_text("")

    def write(line: str) -> None:
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"{line}\n")

    return write
