"""The events of ``events/query_*.json`` for a process of the query function, and its responses to them."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from infra.emulator.lambda_service.function_configuration import (
    AWSLAMBDARIC_COMMAND,
    RUNTIME_COMMAND,
    FunctionConfiguration,
)
from infra.emulator.lambda_service.invocation import Invocation
from infra.emulator.lambda_service.proxy_responses import STREAM_CONTENT_TYPE
from tests.support.aws.live_query_function import QuerySurroundings

ROOT = Path(__file__).parents[3]

Event: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["buffered", "stream"]


def load_event(name: str, *, body: Mapping[str, Any] | None = None, **headers: str) -> Event:
    """Load an event from ``events/``.

    Args:
        name: File name without ``.json``.
        body: Replaces the body.
        ***headers: Headers to replace or add; underscores stand for hyphens.
    """
    event: Event = json.loads((ROOT / "events" / f"{name}.json").read_text())
    if body is not None:
        event["body"] = json.dumps(body)
    for given, value in headers.items():
        wanted = given.replace("_", "-")
        header = next((h for h in event["headers"] if h.lower() == wanted.lower()), wanted)
        event["headers"][header] = value
        if "multiValueHeaders" in event:
            event["multiValueHeaders"][header] = [value]
    return event


def query_function(
    surroundings: QuerySurroundings,
    mode: Mode,
    *,
    variables: Mapping[str, str] | None = None,
    without: Collection[str] = (),
    **options: Any,
) -> FunctionConfiguration:
    """Build the query function: streaming under our runtime, buffered under AWS's. Warnings are errors in it.

    Args:
        surroundings: Database and vendors.
        mode: Value of VECTORFORGE_RESPONSE_MODE.
        variables: Additional environment variables.
        without: Names of environment variables to remove.
        **options: Other fields of the configuration.
    """
    environment = {**surroundings.environment(response_mode=mode), "PYTHONWARNINGS": "error"}
    environment = {name: value for name, value in environment.items() if name not in without}
    command = RUNTIME_COMMAND if mode == "stream" else AWSLAMBDARIC_COMMAND
    return surroundings.function({**environment, **(variables or {})}, command=command, **options)


async def response_of(invocation: Invocation) -> tuple[int, dict[str, str], str]:
    """Status, headers by lower-case name and body, buffered or streamed.

    Raises:
        FunctionFailedError: The function failed.
    """
    await invocation.ended.wait()
    if invocation.error is None and invocation.content_type == STREAM_CONTENT_TYPE:
        prelude, _, body = invocation.body.partition(b"\0" * 8)
        answer, text = json.loads(prelude), body.decode()
    else:
        answer = await invocation.result()
        text = answer["body"]
    return answer["statusCode"], {k.lower(): v for k, v in answer["headers"].items()}, text
