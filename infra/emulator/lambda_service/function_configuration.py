"""Configuration of a function, and the variables that Lambda sets in its process."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, Unpack

from infra.emulator.lambda_service.invocation import Invocation, InvocationOptions
from infra.emulator.lambda_service.runtime_replies import BUFFERED_LIMIT_BYTES, STREAMING_LIMIT_BYTES

RUNTIME_COMMAND = (sys.executable, "-m", "vectorforge.runtime")
"""Our streaming runtime."""
AWSLAMBDARIC_COMMAND = (sys.executable, "-m", "awslambdaric")
"""AWS's own runtime: buffered."""
ACCOUNT_ID = "000000000000"
"""Account id in ARNs and events, as LocalStack and moto use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionConfiguration:
    """Parameters of CreateFunction that apply on a laptop.

    Raises:
        ValueError: Freezing is combined with concurrent events.
    """

    handler: str
    """``package.module.name``."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to those of Lambda, which they may replace."""
    command: Sequence[str] = RUNTIME_COMMAND
    """Command to start; the handler is its last argument."""
    name: str = "function"
    timeout_s: float = 30.0
    """Time from the dispatch of an event to the runtime's next poll."""
    init_timeout_s: float = 10.0
    """Time from the process's start to its first poll; 10 s on AWS."""
    memory_mb: int = 512
    """Reported to the function, not enforced."""
    task_root: Path = field(default_factory=Path.cwd)
    """Working directory and LAMBDA_TASK_ROOT."""
    freeze_between_invocations: bool = False
    """Stop the process (SIGSTOP) while it waits for an event, and continue it (SIGCONT) before one: work
    after the response is suspended, as on Lambda."""
    snap_start: bool = False
    """Initialize as for a SnapStart snapshot."""
    max_concurrency: int = 1
    """Concurrent events in one environment (AWS_LAMBDA_MAX_CONCURRENCY)."""
    recursive_loop: Literal["Terminate", "Allow"] = "Terminate"
    """Policy for a chain of events that reaches the function more than ``MAX_HOPS`` times."""
    buffered_limit: int = BUFFERED_LIMIT_BYTES
    streaming_limit: int = STREAMING_LIMIT_BYTES

    def __post_init__(self) -> None:
        if self.freeze_between_invocations and self.max_concurrency > 1:
            raise ValueError("freeze_between_invocations needs max_concurrency=1.")

    @property
    def region(self) -> str:
        """Region of the function (AWS_REGION)."""
        return self.environment.get("AWS_REGION", "us-east-1")

    @property
    def arn(self) -> str:
        """Unqualified ARN."""
        return f"arn:aws:lambda:{self.region}:{ACCOUNT_ID}:function:{self.name}"

    def variables(self, runtime_api: str) -> dict[str, str]:
        """Return the environment of the process, which has only PATH of this one.

        https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html; emulators
        accept the fake credentials.

        Args:
            runtime_api: Address of its Runtime API.
        """
        reserved = {
            "AWS_LAMBDA_RUNTIME_API": runtime_api,
            "_HANDLER": self.handler,
            "AWS_LAMBDA_FUNCTION_NAME": self.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(self.memory_mb),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start" if self.snap_start else "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{self.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": "local",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_SESSION_TOKEN": "test",
            "AWS_XRAY_CONTEXT_MISSING": "LOG_ERROR",
            "LAMBDA_TASK_ROOT": str(self.task_root),
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "LANG": "en_US.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "TZ": ":UTC",
        }
        if self.max_concurrency > 1:
            reserved["AWS_LAMBDA_MAX_CONCURRENCY"] = str(self.max_concurrency)
        return reserved | dict(self.environment)


class Function(Protocol):
    """A function that accepts events."""

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        """Send an event (a JSON value, or bytes) to the function.

        Returns:
            The invocation, before its response begins.

        Raises:
            TooManyRequestsError: The function's concurrency is exhausted.
            RecursionStoppedError: The event's trace has reached the function too often.
        """
        ...


class TooManyRequestsError(Exception):
    """Lambda's TooManyRequestsException: the function's reserved concurrency is exhausted."""
