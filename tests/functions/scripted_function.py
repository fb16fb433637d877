"""A function whose runtime is the test, and the front doors in front of it."""

import json
from collections.abc import Callable
from typing import Any, Unpack

from infra.emulator.lambda_service.front_doors import FrontDoor, FunctionUrl
from infra.emulator.lambda_service.function_configuration import (
    Function,
)
from infra.emulator.lambda_service.invocation import Invocation, InvocationOptions
from tests.functions.driven_runtime_api import DrivenRuntimeApi
from tests.functions.raw_runtime import RawRuntime
from tests.support.aws.http_api import HttpApi
from tests.support.aws.rest_api import RestApi


class ScriptedFunction:
    """A function whose runtime is the test."""

    def __init__(self, api: DrivenRuntimeApi, runtime: RawRuntime) -> None:
        self.api = api
        self.runtime = runtime
        self.invocations: list[Invocation] = []

    async def invoke(self, event: object, **options: Unpack[InvocationOptions]) -> Invocation:
        self.invocations.append(self.api.invoke(event, **options))
        return self.invocations[-1]

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return request id and event of the next invocation."""
        headers, body = await self.runtime.next()
        return headers["lambda-runtime-aws-request-id"], json.loads(body)

    async def answer(self, answer: object) -> dict[str, Any]:
        """Answer the next event; bytes are sent unchanged."""
        request_id, event = await self.next()
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        await self.runtime.request("POST", f"/invocation/{request_id}/response", body)
        return event


Door = Callable[[Function], FrontDoor]


DOORS: dict[str, Door] = {
    "function_url": lambda function: FunctionUrl(function, response_mode="buffered"),
    "rest_api": lambda function: RestApi(function, response_mode="buffered"),
    "http_api": HttpApi,
}
