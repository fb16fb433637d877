"""A server as a separate process, for ``test_resumed_streams_faults`` to kill; prints its URL."""

import asyncio
import sys

from tests.support.http.live_server import serve
from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig


async def main() -> None:
    application = Application.build(VectorForgeConfig.from_environment())
    async with serve(create_app(application)) as url:
        sys.stdout.write(url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
