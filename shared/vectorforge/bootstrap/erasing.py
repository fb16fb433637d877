"""Who erases in this process, and what it cannot reach."""

import logging
from typing import TYPE_CHECKING

from vectorforge.deadline import Deadline
from vectorforge.erasure.eraser import Eraser
from vectorforge.erasure.repo import ErasureDatabase, ErasureRepository, claim_erasure
from vectorforge.errors import NotFoundError, ObjectStoreError

if TYPE_CHECKING:
    from vectorforge.bootstrap.application import Application

logger = logging.getLogger(__name__)

_TURN_S = 5.0
"""Of a worker, for one erasure; then jobs have their turn."""
_EVERYWHERE = (
    "backups, snapshots and write-ahead logs of the database, until they expire",
    "lines that were logged already: standard output, CloudWatch Logs",
)
_ON_AWS = (
    "messages in queues and large records that they name: what they would bring back is refused on arrival",
    "dead letters, until they are redriven or expire",
)


def eraser_of(application: "Application", tenant_id: str, *, leaves_files: bool = False) -> Eraser:
    """What erases a tenant's data in this process.

    Args:
        application: Its database may be of the app's or the eraser's role.
        tenant_id: The tenant.
        leaves_files: Leave uploaded files to the process that ingests them.
    """
    on_aws = application.config.aws.query_log_queue_url or application.config.aws.uploads_bucket
    return Eraser(
        ErasureRepository(ErasureDatabase(application.database, tenant_id)),
        files=None if leaves_files else application.uploaded_files,
        leaves_files=leaves_files,
        not_reached=(*_EVERYWHERE, *(_ON_AWS if on_aws else ())),
        on_begun=lambda: application.answer_memory.clear(tenant_id),
    )


async def resume_erasure(application: "Application") -> bool:
    """See ``Application.resume_erasure``."""
    claimed = await claim_erasure(application.database)
    if claimed is None:
        return False
    tenant_id, erasure_id = claimed
    try:
        await eraser_of(application, tenant_id).run(erasure_id, Deadline.after(_TURN_S))
    except NotFoundError:  # its row was deleted by hand
        return False
    except ObjectStoreError as exc:  # jobs go on; it is tried again when the lease's time is over
        logger.warning("Uploaded files are still to be erased: %s", exc.message)
        return False
    return True
