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
    """Ends what is not answered a second before Lambda's timeout: with 504, or cut off if it has begun.

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
        has_begun = is_complete = False

        async def limited_send(message: Message) -> None:
            nonlocal has_begun, is_complete
            if limit.expired():
                # What the app makes of its cancellation comes too late: the answer is given below.
                return
            has_begun = True
            await send(message)
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)

        failure: Exception | None = None
        try:
            async with limit:
                await self.app(scope, receive, limited_send)
        except Exception as exc:
            if not limit.expired():
                raise
            failure = exc
        if not limit.expired() or is_complete:  # what a whole answer leaves at work is a background task
            return
        if has_begun:  # its status has left; whoever serves it cuts it off
            raise DeadlineExceededError from failure
        await error_response(scope["state"], DeadlineExceededError())(scope, receive, send)
