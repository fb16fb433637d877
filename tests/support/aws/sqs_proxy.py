"""A proxy of SQS that delivers twice, late and out of order, and can hold a message in transit.

It also stores the sender's trace with the message, as SQS does and moto does not.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Self, TypeAlias

from aiohttp import ClientSession, web

SendingPoint: TypeAlias = Literal["before the queue", "in the queue"]
"""Position of a message in transit: not received yet, or received while the sender has no response."""
SendingHook: TypeAlias = Callable[[SendingPoint, str], Awaitable[None]]
"""Called at both points with the message's body; the message waits until it returns."""

_SEND = "AmazonSQS.SendMessage"
_NOT_PASSED_ON = {"host", "content-length", "connection"}
_PASSED_BACK = {"content-type", "x-amzn-requestid", "x-amzn-query-error"}


class SqsProxy:
    """Listens on 127.0.0.1 while it is an entered context manager; relays every call.

    Args:
        upstream: Base URL of the real endpoint.
        hook: Called for each SendMessage.
        delays: Called for each SendMessage; returns the delay of each delivery in whole seconds. SQS's
            standard queues guarantee neither order nor a single delivery.
        delivers_orphans: Called for a message whose sender died during the request; returns whether it
            arrives.
    """

    def __init__(
        self,
        upstream: str,
        *,
        hook: SendingHook | None = None,
        delays: Callable[[], Sequence[int]] = lambda: (0,),
        delivers_orphans: Callable[[], bool] = lambda: True,
    ) -> None:
        self.url = ""
        """Set once it listens."""
        self.sent = 0
        """Number of messages that clients sent."""
        self.delivered = 0
        """Number of messages that the queue accepted, duplicates included."""
        self._upstream = upstream
        self._hook = hook
        self._delays = delays
        self._delivers_orphans = delivers_orphans
        self._runner: web.AppRunner | None = None
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=4 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._session = ClientSession()
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = "http://{}:{}".format(*self._runner.addresses[0][:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("X-Amz-Target") == _SEND:
            return await self._send(request, json.loads(body))
        return await self._call(request, body)

    async def _send(self, request: web.Request, call: dict[str, Any]) -> web.Response:
        self.sent += 1
        message = call["MessageBody"]
        if trace := request.headers.get("X-Amzn-Trace-Id"):
            header = {"DataType": "String", "StringValue": trace}
            call = {**call, "MessageSystemAttributes": {"AWSTraceHeader": header}}
        await self._reach("before the queue", message)
        if request.transport is None and not self._delivers_orphans():
            return web.Response(status=503)
        answers = [
            await self._call(request, json.dumps({**call, "DelaySeconds": delay}).encode())
            for delay in self._delays()
        ]
        self.delivered += sum(answer.status == 200 for answer in answers)
        await self._reach("in the queue", message)
        return answers[-1]

    async def _reach(self, point: SendingPoint, message: str) -> None:
        if self._hook is not None:
            await self._hook(point, message)

    async def _call(self, request: web.Request, body: bytes) -> web.Response:
        assert self._session is not None
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED_ON
        }
        url = self._upstream + request.path_qs
        async with self._session.request(request.method, url, headers=headers, data=body) as answer:
            return web.Response(
                status=answer.status,
                body=await answer.read(),
                headers={
                    name: value for name, value in answer.headers.items() if name.lower() in _PASSED_BACK
                },
            )
