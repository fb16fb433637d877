"""A Runtime API whose events come from the test."""

import json
from collections.abc import Mapping
from typing import Unpack

from infra.emulator.lambda_service.invocation import Hook, HookPoint, Invocation, InvocationOptions
from infra.emulator.lambda_service.runtime_api import RuntimeApi
from infra.emulator.lambda_service.runtime_replies import BUFFERED_LIMIT_BYTES, STREAMING_LIMIT_BYTES


class DrivenRuntimeApi(RuntimeApi):
    """A Runtime API without a process."""

    def __init__(
        self,
        *,
        hooks: Mapping[HookPoint, Hook] | None = None,
        buffered_limit: int = BUFFERED_LIMIT_BYTES,
        streaming_limit: int = STREAMING_LIMIT_BYTES,
        concurrency: int = 1,
        snap_start: bool = False,
    ) -> None:
        super().__init__(
            function_arn="arn:aws:lambda:us-east-1:000000000000:function:function",
            hooks=hooks or {},
            buffered_limit=buffered_limit,
            streaming_limit=streaming_limit,
            concurrency=concurrency,
            snap_start=snap_start,
        )

    def invoke(
        self, event: object, *, deadline_s: float = 30.0, **options: Unpack[InvocationOptions]
    ) -> Invocation:
        """Queue an event, a JSON value or bytes as they are, for the next poll."""
        payload = event if isinstance(event, bytes) else json.dumps(event).encode()
        invocation = Invocation(payload, deadline_s, **options)
        self.submit(invocation)
        return invocation
