"""A function with reserved concurrency: several execution environments."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Self, Unpack

from infra.emulator.lambda_service.function_configuration import (
    FunctionConfiguration,
    TooManyRequestsError,
)
from infra.emulator.lambda_service.function_process import FunctionProcess, ProcessHook
from infra.emulator.lambda_service.invocation import HookPoint, Invocation, InvocationOptions

_GRACE_S = 0.2
"""Between the end of a response and the runtime's next poll; a new environment takes longer."""


class LambdaFunction:
    """Function that runs each event in an idle or new environment, up to ``concurrency``.

    Args:
        configuration: Configuration of the function.
        concurrency: Environments at one time (reserved concurrency); 0 refuses every event.
        hooks: Called at the points of every invocation.
        on_log: Called with each line of output.
    """

    def __init__(
        self,
        configuration: FunctionConfiguration,
        *,
        concurrency: int = 1,
        hooks: Mapping[HookPoint, ProcessHook] | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        self.configuration = configuration
        self.processes = [
            FunctionProcess(configuration, hooks=hooks, on_log=on_log) for _ in range(concurrency)
        ]
        """All processes, started on demand in this order."""
        self.throttles = 0
        """Events refused so far."""
        self._arriving = 0
        self._reserved = dict.fromkeys(self.processes, 0)
        self._active: dict[Invocation, FunctionProcess] = {}
        self._freed = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        """Send an event (a JSON value, or bytes) to an environment.

        Returns:
            The invocation, before its response begins.

        Raises:
            TooManyRequestsError: ``concurrency`` events are unanswered.
            RecursionStoppedError: The event's trace has reached the function too often.
        """
        unanswered = sum(not invocation.ended.is_set() for invocation in self._active)
        if self._arriving + unanswered >= len(self.processes) * self.configuration.max_concurrency:
            self.throttles += 1
            raise TooManyRequestsError(f"{self.configuration.name} has no free concurrency.")
        self._arriving += 1
        try:
            process = await self._reserve()
            try:
                invocation = await process.invoke(event, **options)
            finally:
                self._reserved[process] -= 1
        finally:
            self._arriving -= 1
        self._active[invocation] = process
        watcher = asyncio.create_task(self._watch(invocation))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return invocation

    async def stop(self) -> None:
        """Stop every process; running invocations fail."""
        await asyncio.gather(*(process.stop() for process in self.processes))
        await asyncio.gather(*self._watchers)

    async def _reserve(self) -> FunctionProcess:
        """Reserve a process: warm and free, warm and soon free, new, or the first to become free."""
        patient = True
        while True:
            free = [process for process in self.processes if self._has_room(process)]
            warm = [process for process in free if process.is_running]
            finishing = any(invocation.ended.is_set() for invocation in self._active)
            if warm or (free and not (patient and finishing)):
                chosen = (warm or free)[0]
                self._reserved[chosen] += 1
                return chosen
            try:
                async with asyncio.timeout(_GRACE_S if free else None):
                    await self._freed.wait()
            except TimeoutError:
                patient = False

    def _has_room(self, process: FunctionProcess) -> bool:
        taken = sum(
            user is process and not invocation.completed.is_set() for invocation, user in self._active.items()
        )
        return self._reserved[process] + taken < self.configuration.max_concurrency

    async def _watch(self, invocation: Invocation) -> None:
        await invocation.completed.wait()
        del self._active[invocation]
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()
