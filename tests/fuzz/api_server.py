"""The whole API in a separate process, for fuzzing.

Vectors are lexical and answers extractive: it needs no model and no network.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.aws.fake_aws import FakeAws
from tests.support.http.live_api import build_application, key_of, settings_for
from tests.support.http.live_server import serve
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.api.app import create_app
from vectorforge.config import AwsSettings, LimitSettings

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running server process, and its tenants."""

    url: str
    tenant: str

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the tenant's requests."""
        return headers_of(self.tenant)

    @property
    def spare(self) -> str:
        """Return another tenant, which may be erased."""
        return spare_of(self.tenant)


def headers_of(tenant: str) -> dict[str, str]:
    """Return the headers of a tenant's requests."""
    return {"Authorization": f"Bearer {key_of(tenant)}"}


def spare_of(tenant: str) -> str:
    """Return the name of the tenant that is erased in its place."""
    return f"{tenant}-spare"


@asynccontextmanager
async def api_server(database_url: str, tenant: str, *, log: IO[bytes]) -> AsyncIterator[ApiServer]:
    """Start it on a migrated database (app's role) for a tenant; its log goes to the file ``log``."""
    with FakeAws() as aws:  # a tenant is erased when its uploads are, too
        bucket = aws.create_bucket()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.fuzz.api_server"),
            cwd=ROOT,
            env={
                **os.environ,
                **aws.environment,
                "PYTHONPATH": f"{ROOT / 'shared'}:{ROOT}",
                "FUZZ_DATABASE_URL": database_url,
                "FUZZ_TENANT": tenant,
                "FUZZ_BUCKET": bucket,
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            assert process.stdout is not None
            if not (url := (await process.stdout.readline()).decode().strip()):
                raise RuntimeError("The server did not start; its log says why.")
            yield ApiServer(url, tenant)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _serve() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    tenant = os.environ["FUZZ_TENANT"]
    config = settings_for(
        os.environ["FUZZ_DATABASE_URL"],
        [tenant, spare_of(tenant)],
        server={"local_tenant": tenant},  # may read /metrics
        aws=AwsSettings(uploads_bucket=os.environ["FUZZ_BUCKET"]),
        limits=LimitSettings(limit_requests_per_minute=1_000_000, limit_tokens_per_day=10**12),  # counted
    )
    application = build_application(config)
    application.embedding_registry.register(HashingEmbedder(name="other", dimension=32))  # target of changes
    async with serve(create_app(application)) as url:
        sys.stdout.write(url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
