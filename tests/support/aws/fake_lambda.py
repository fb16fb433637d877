"""Lambda's API over one process of a function: Invoke, its alias and its configuration."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from infra.emulator.lambda_service.function_process import FunctionProcess

_PREFIX = "/2015-03-31/functions/{name}"


@asynccontextmanager
async def fake_lambda(
    function: FunctionProcess, *versions: str, after: Callable[[list[str]], None] = lambda _: None
) -> AsyncIterator[str]:
    """Serve the API, and yield its URL.

    Args:
        function: Receives all events.
        *versions: Of the alias, one for each look at it; without any always "7".
        after: Called after each invocation with all lines that the function printed so far.
    """

    looks = iter(versions)

    async def invoke(request: web.Request) -> web.Response:
        invocation = await function.invoke(json.loads(await request.read()))
        await invocation.ended.wait()
        await invocation.completed.wait()
        after(list(function.output.lines))
        failed = {"X-Amz-Function-Error": "Unhandled"} if invocation.error else {}
        return web.Response(body=invocation.body, headers=failed)

    async def alias(_: web.Request) -> web.Response:
        return web.json_response({"FunctionVersion": next(looks, "7")})

    async def configuration(_: web.Request) -> web.Response:
        variables = dict(function.configuration.environment)
        return web.json_response({"Environment": {"Variables": variables}})

    app = web.Application()
    app.router.add_post(f"{_PREFIX}/invocations", invoke)
    app.router.add_get(f"{_PREFIX}/aliases/{{alias}}", alias)
    app.router.add_get(f"{_PREFIX}/configuration", configuration)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        with contextlib.suppress(ConnectionError):
            await runner.cleanup()
