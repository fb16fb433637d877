"""A function that runs in one process at a time, as Lambda runs one execution environment."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, Self, TypeAlias, Unpack

from infra.emulator.lambda_service.execution_environment import ExecutionEnvironment
from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.invocation import (
    FunctionError,
    FunctionFailedError,
    Hook,
    HookPoint,
    Invocation,
    InvocationOptions,
)
from infra.emulator.lambda_service.process_output import ProcessOutput
from infra.emulator.lambda_service.recursion import MAX_HOPS, RecursionStoppedError, count_hop
from infra.emulator.lambda_service.runtime_api import RuntimeApi

ProcessHook: TypeAlias = Callable[["FunctionProcess", Invocation, bytes], Awaitable[None]]
"""Like ``Hook``, with the process, so that it can be frozen or killed exactly there."""

_KEPT_INVOCATIONS = 100
_LAST_BYTES_S = 2.0


class FunctionProcess:
    """Started by the first event, reused, and replaced by the next event when it died.

    An event waits while another one is under way. A function that reports an init error, dies, or takes
    longer than its timeout fails the invocation as on AWS, and its process is gone afterwards. (AWS repeats
    a failed init once within the invocation; here its error comes at once.) Leave it with ``stop`` or as an
    async context manager.

    Args:
        configuration: Of the function.
        hooks: Called at the points of every invocation; the service waits for them.
        on_log: Called with each line that the function writes.
    """

    def __init__(
        self,
        configuration: FunctionConfiguration,
        *,
        hooks: Mapping[HookPoint, ProcessHook] | None = None,
        on_log: Callable[[str], None] | None = None,
    ) -> None:
        self.configuration = configuration
        self.output = ProcessOutput(on_log)
        """What the function wrote, over all its processes."""
        self.invocations: deque[Invocation] = deque(maxlen=_KEPT_INVOCATIONS)
        """The last ones, oldest first."""
        self.starts = 0
        """Processes started so far."""
        self._hooks = {point: self._bind(hook) for point, hook in (hooks or {}).items()}
        self._slots = asyncio.Semaphore(configuration.max_concurrency)
        self._starting = asyncio.Lock()
        self._environment: ExecutionEnvironment | None = None
        self._supervisors: set[asyncio.Task[None]] = set()
        self._stopped = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def environment(self) -> ExecutionEnvironment:
        """The current process and its Runtime API.

        Raises:
            RuntimeError: None has been started, or it was stopped.
        """
        if self._environment is None:
            raise RuntimeError("The function has no process.")
        return self._environment

    @property
    def runtime_api(self) -> RuntimeApi:
        """Of the current process; see ``environment``."""
        return self.environment.runtime_api

    @property
    def pid(self) -> int | None:
        """Of the running process; None when there is none."""
        return self.environment.pid if self.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether there is a process; a frozen one counts."""
        return self._environment is not None and self._environment.is_running

    @property
    def is_busy(self) -> bool:
        """Whether an event would have to wait."""
        return self._slots.locked()

    async def start(self) -> None:
        """Start the process before its first event (provisioned concurrency) and wait until it polls.

        Raises:
            FunctionFailedError: Its init failed or took too long.
        """
        environment, _ = await self._warm()
        reached = await _first(environment.runtime_api.ready, environment, self.configuration.init_timeout_s)
        if reached != "event":
            await environment.close()
            raise FunctionFailedError(
                self._error(reached, environment, "", self.configuration.init_timeout_s)
            )

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        """Hand an event (a JSON value, or bytes) to the function, as soon as it is free.

        Returns:
            The invocation, before its response begins.

        Raises:
            RuntimeError: It was stopped.
            RecursionStoppedError: The event's trace has been here too often.
        """
        payload = event if isinstance(event, bytes) else json.dumps(event).encode()
        invocation = Invocation(payload, self.configuration.timeout_s, **options)
        invocation.trace_id, hops = count_hop(invocation.trace_id, self.configuration.name)
        if hops > MAX_HOPS and self.configuration.recursive_loop == "Terminate":
            raise RecursionStoppedError(f"{self.configuration.name} was reached {MAX_HOPS} times before.")
        await self._slots.acquire()
        if self._stopped:
            self._slots.release()
            raise RuntimeError("The function was stopped.")
        self.invocations.append(invocation)
        supervisor = asyncio.create_task(self._supervise(invocation))
        self._supervisors.add(supervisor)
        supervisor.add_done_callback(self._supervisors.discard)
        return invocation

    async def kill(self) -> None:
        """SIGKILL, and wait for the end; an invocation under way fails with Runtime.ExitError."""
        if self._environment is not None:
            await self._environment.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.environment.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.environment.thaw()

    async def stop(self) -> None:
        """SIGTERM, after two seconds SIGKILL; an invocation under way fails. It cannot be started again."""
        self._stopped = True
        async with self._starting:
            environment = self._environment
        if environment is not None:
            await environment.terminate()
        await asyncio.gather(*self._supervisors)

    async def _supervise(self, invocation: Invocation) -> None:
        try:
            while not await self._run(invocation):
                pass  # an idle process had died; the event was not lost with it
        finally:
            self._slots.release()

    async def _run(self, invocation: Invocation) -> bool:
        """See an invocation through. False: the process was dead before it got the event."""
        try:
            environment, was_warm = await self._warm()
        except OSError:  # the command cannot be run
            text = f"RequestId: {invocation.request_id} Error: the runtime could not be started"
            invocation.fail(FunctionError.of("Runtime.InvalidEntrypoint", text))
            invocation.completed.set()
            return True
        environment.thaw()
        environment.runtime_api.submit(invocation)
        settings = self.configuration
        patience_s = settings.timeout_s if was_warm else settings.init_timeout_s
        reached = await _first(invocation.dispatched, environment, patience_s)
        if reached == "exit" and was_warm and not self._stopped:
            await environment.runtime_api.drain(_LAST_BYTES_S)
            if environment.runtime_api.withdraw(invocation):
                await environment.close()
                return False
        if reached == "event":
            patience_s = settings.timeout_s
            reached = await _first(invocation.completed, environment, patience_s)
        if reached == "event":
            return True
        if reached == "timeout":
            await environment.kill()
        else:
            await environment.runtime_api.drain(_LAST_BYTES_S)  # may bring the rest of the response
        invocation.fail(self._error(reached, environment, invocation.request_id, patience_s))
        await environment.close()
        invocation.completed.set()
        return True

    async def _warm(self) -> tuple[ExecutionEnvironment, bool]:
        """The environment, and whether it was there already."""
        async with self._starting:
            if self._environment is not None and self._environment.is_running:
                return self._environment, True
            if self._environment is not None:
                await self._environment.close()  # it died while it was idle
                self._environment = None
            environment = ExecutionEnvironment(self.configuration, self._hooks, self.output)
            await environment.open()
            self._environment = environment
            self.starts += 1
            return environment, False

    def _error(
        self, reached: str, environment: ExecutionEnvironment, request_id: str, patience_s: float
    ) -> FunctionError:
        if reached == "exit":
            return environment.exit_error(request_id)
        text = f"RequestId: {request_id} Error: Task timed out after {patience_s:.2f} seconds"
        return FunctionError.of("Sandbox.Timedout", text)

    def _bind(self, hook: ProcessHook) -> Hook:
        async def call(invocation: Invocation, data: bytes) -> None:
            await hook(self, invocation, data)

        return call


async def _first(
    event: asyncio.Event, environment: ExecutionEnvironment, timeout_s: float
) -> Literal["event", "exit", "timeout"]:
    """What comes first: the event, the end of the process, or the end of the time."""
    waiting = asyncio.create_task(event.wait())
    both: tuple[asyncio.Future[object], ...] = (waiting, environment.exit)  # type: ignore[assignment]
    try:
        done, _ = await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if event.is_set():
        return "event"
    return "exit" if done else "timeout"
