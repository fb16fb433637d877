"""A function with its reserved concurrency: several execution environments, and no more."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Self, Unpack

from vectorforge.local.lambda_service.function_configuration import (
    FunctionConfiguration,
    TooManyRequestsError,
)
from vectorforge.local.lambda_service.function_process import FunctionProcess, ProcessHook
from vectorforge.local.lambda_service.invocation import HookPoint, Invocation, InvocationOptions

_GRACE_S = 0.2
"""Between the end of a response and the runtime's next poll; a new environment takes longer."""


class LambdaFunction:
    """Each event gets an idle environment, else a new one, up to ``concurrency``; beyond it, none.

    Args:
        configuration: Of the function.
        concurrency: Environments at one time (reserved concurrency); 0 refuses every event.
        hooks: Called at the points of every invocation.
        on_log: Called with each line that the function writes.
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
        """All that may run; started when needed, the first ones first."""
        self.throttles = 0
        """Events refused so far."""
        self._under_way = 0
        self._finishing = 0
        self._leases = dict.fromkeys(self.processes, 0)
        self._freed = asyncio.Event()
        self._watchers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        """Hand an event (a JSON value, or bytes) to an environment.

        Returns:
            The invocation, before its response begins.

        Raises:
            TooManyRequestsError: As many events as ``concurrency`` allows have no answer yet.
        """
        if self._under_way >= len(self.processes) * self.configuration.max_concurrency:
            self.throttles += 1
            raise TooManyRequestsError(f"{self.configuration.name} has no free concurrency.")
        self._under_way += 1
        try:
            process = await self._lease()
        except BaseException:
            self._under_way -= 1
            raise
        invocation = await process.invoke(event, **options)
        watcher = asyncio.create_task(self._watch(process, invocation))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return invocation

    async def stop(self) -> None:
        """Stop every process; invocations under way fail."""
        await asyncio.gather(*(process.stop() for process in self.processes))
        await asyncio.gather(*self._watchers)

    async def _lease(self) -> FunctionProcess:
        """Warm and free; else warm and soon free; else new; else the first that gets free."""
        patient = True
        while True:
            most = self.configuration.max_concurrency
            free = [process for process, leases in self._leases.items() if leases < most]
            warm = [process for process in free if process.is_running]
            if warm or (free and not (patient and self._finishing)):
                chosen = (warm or free)[0]
                self._leases[chosen] += 1
                return chosen
            try:
                async with asyncio.timeout(_GRACE_S if free else None):
                    await self._freed.wait()
            except TimeoutError:
                patient = False

    async def _watch(self, process: FunctionProcess, invocation: Invocation) -> None:
        await invocation.ended.wait()
        self._under_way -= 1
        self._finishing += 1
        await invocation.completed.wait()
        self._finishing -= 1
        self._leases[process] -= 1
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()
