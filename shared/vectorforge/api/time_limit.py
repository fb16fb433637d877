"""The time that an invocation has on Lambda, and an answer before it is over."""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.api.problems import error_response
from vectorforge.errors import DeadlineExceededError

LAMBDA_MARGIN_S = 2.0
"""Kept back of an invocation's time by a query, to end its answer in good order and to log it."""

_LAST_WORD_S = 1.0
"""Kept back for the answer that there is no answer."""


def invocation_time_s(scope: Scope) -> float | None:
    """Seconds until Lambda stops the process; None elsewhere."""
    context: Any = scope.get("aws.context")  # set by Mangum and by our runtime
    return None if context is None else context.get_remaining_time_in_millis() / 1000


class TimeLimit:
    """Answers 504 while there is time for it, when an answer has not begun a second before Lambda's timeout.

    Queries end by themselves before that; this is for what comes before them, such as a database that does
    not answer, and for all other routes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        time_s = invocation_time_s(scope) if scope["type"] == "http" else None
        if time_s is None:
            await self.app(scope, receive, send)
            return
        limit = asyncio.timeout(time_s - _LAST_WORD_S)

        async def unlimiting_send(message: Message) -> None:
            if not limit.expired():
                limit.reschedule(None)
            await send(message)

        try:
            async with limit:
                await self.app(scope, receive, unlimiting_send)
        except TimeoutError:
            if not limit.expired():
                raise
            await error_response(scope["state"], DeadlineExceededError())(scope, receive, send)
