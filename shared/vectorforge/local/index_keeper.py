"""Builds the vectors' indexes on a laptop: where nobody else would, beside the server that needs them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vectorforge.db.index_building import build_indexes
from vectorforge.errors import ConflictError, VectorForgeError

logger = logging.getLogger(__name__)


@asynccontextmanager
async def indexes_kept(
    migrator_url: str | None, *, larger_than: int, every_s: float = 60.0
) -> AsyncIterator[None]:
    """Look every minute, as long as the block runs, for a collection that has outgrown the exact search.

    A build that the end of the block interrupts is begun again by the next one.

    Args:
        migrator_url: Of the role that owns the schema; None: nobody looks.
        larger_than: See ``build_indexes``.
        every_s: Seconds between two looks.
    """
    if migrator_url is None:
        yield
        return
    keeping = asyncio.create_task(_keep(migrator_url, larger_than, every_s))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _keep(migrator_url: str, larger_than: int, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        try:
            for index in await build_indexes(migrator_url, larger_than=larger_than):
                logger.info("Built the index of %s (%d vectors)", index.space, index.vectors)
        except ConflictError:  # another process builds
            continue
        except VectorForgeError as exc:
            logger.warning("The indexes of the vectors could not be built: %s", exc.message)
