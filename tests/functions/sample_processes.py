"""Processes of the sample function under awslambdaric."""

import asyncio
import time
from pathlib import Path
from typing import Any

from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    FunctionConfiguration,
)
from infra.emulator.lambda_service.function_process import FunctionProcess
from infra.emulator.lambda_service.lambda_function import LambdaFunction

HERE = Path(__file__).parent


SLOW_S = 120.0
"""Timeout for steps that must not be cut short on a busy machine."""


def configuration(handler: str = "plain", **settings: Any) -> FunctionConfiguration:
    defaults = {"timeout_s": SLOW_S, "init_timeout_s": SLOW_S}
    return FunctionConfiguration(
        handler=f"sample_function.{handler}",
        command=AWSLAMBDARIC_COMMAND,
        task_root=HERE,
        **(defaults | settings),
    )


async def result(process: FunctionProcess | LambdaFunction, event: object) -> Any:
    return await (await process.invoke(event)).result()


async def state_of(pid: int, *states: str) -> None:
    """Wait until a process has one of these states: T is stopped, Z has ended, empty is gone."""

    def wait() -> None:
        give_up_at = time.monotonic() + SLOW_S
        while state() not in states:
            assert time.monotonic() < give_up_at
            time.sleep(0.005)

    def state() -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return ""

    await asyncio.to_thread(wait)
