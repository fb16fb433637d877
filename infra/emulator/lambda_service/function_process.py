"""A function in one process at a time, like one execution environment of Lambda."""

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
"""Like ``Hook``, with the process, to freeze or kill it there."""

_KEPT_INVOCATIONS = 100
_LAST_BYTES_S = 2.0


class FunctionProcess:
    """Process that the first event starts; reused, and replaced by the next event after it died.

    Events are queued while another one runs. A function that reports an init error, dies, or exceeds its
    timeout fails the invocation as on AWS and loses its process. (AWS retries a failed init once within the
    invocation; here its error is returned at once.) Close it with ``stop`` or as an async context manager.

    Args:
        configuration: Configuration of the function.
        hooks: Awaited at the points of every invocation.
        on_log: Called with each line of output.
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
        """Output of the function, over all its processes."""
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
            RuntimeError: No process was started, or it was stopped.
        """
        if self._environment is None:
            raise RuntimeError("The function has no process.")
        return self._environment

    @property
    def runtime_api(self) -> RuntimeApi:
        """Runtime API of the current process; see ``environment``."""
        return self.environment.runtime_api

    @property
    def pid(self) -> int | None:
        """Id of the running process, or None."""
        return self.environment.pid if self.is_running else None

    @property
    def is_running(self) -> bool:
        """True while a process is alive, running or frozen."""
        return self._environment is not None and self._environment.is_running

    async def start(self) -> None:
        """Start the process before its first event (provisioned concurrency) and wait until it polls.

        Raises:
            FunctionFailedError: The init phase failed or timed out.
        """
        try:
            environment, _ = await self._warm()
        except OSError as exc:
            raise FunctionFailedError(_not_started(exc)) from exc
        reached = await _first(environment.runtime_api.ready, environment, self.configuration.init_timeout_s)
        if reached != "event":
            await environment.close()
            raise FunctionFailedError(
                self._error(reached, environment, "", self.configuration.init_timeout_s)
            )

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        """Send an event (a JSON value, or bytes) to the function as soon as it is free.

        Returns:
            The invocation, before its response begins.

        Raises:
            RuntimeError: The function was stopped.
            RecursionStoppedError: The event's trace has reached the function too often.
        """
        payload = event if isinstance(event, bytes) else json.dumps(event).encode()
        invocation = Invocation(payload, self.configuration.timeout_s, **options)
        invocation.trace_id, hops = count_hop(invocation.trace_id, self.configuration.name)
        if hops > MAX_HOPS and self.configuration.recursive_loop == "Terminate":
            raise RecursionStoppedError(
                f"A chain of events reached {self.configuration.name} {MAX_HOPS} times."
            )
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
        """Send SIGKILL and wait for the end; a running invocation fails with Runtime.ExitError."""
        if self._environment is not None:
            await self._environment.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.environment.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.environment.thaw()

    async def stop(self) -> None:
        """Send SIGTERM, after two seconds SIGKILL; a running invocation and further events fail."""
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
        """Run an invocation to its end. False: the process had died before it got the event."""
        try:
            environment, was_warm = await self._warm()
        except OSError as exc:
            invocation.fail(_not_started(exc))
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
        """Return the environment, and whether it existed."""
        async with self._starting:
            if self._environment is not None and self._environment.is_running:
                return self._environment, True
            if self._environment is not None:
                await self._environment.close()  # it died while it was idle
                self._environment = None
            environment = await ExecutionEnvironment.start(self.configuration, self._hooks, self.output)
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


def _not_started(exc: OSError) -> FunctionError:
    text = f"Error: the runtime could not be started: {exc.strerror}: {exc.filename}"
    return FunctionError.of("Runtime.InvalidEntrypoint", text)


async def _first(
    event: asyncio.Event, environment: ExecutionEnvironment, timeout_s: float
) -> Literal["event", "exit", "timeout"]:
    """Wait for the first of: the event, the end of the process, the timeout."""
    waiting = asyncio.create_task(event.wait())
    both: tuple[asyncio.Future[object], ...] = (waiting, environment.exit)  # type: ignore[assignment]
    try:
        done, _ = await asyncio.wait(both, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if event.is_set():
        return "event"
    return "exit" if done else "timeout"
