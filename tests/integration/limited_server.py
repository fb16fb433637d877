"""A server as a separate process, for ``test_limits``; prints its URL.

``python limited_server.py <app url> <seconds before the model's first token> <tenant> ...``; a tenant's key
is as in ``live_api``. Limits are set by VECTORFORGE_LIMIT_*, as for any server.
"""

import asyncio
import sys

from tests.support.http.live_api import live_api, settings_for
from tests.support.vendors.scripted_llm import ScriptedLLM


async def main(url: str, delay_s: str, *tenants: str) -> None:
    async with live_api(settings_for(url, tenants), ScriptedLLM(delay_s=float(delay_s))) as api:
        sys.stdout.write(api.url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
