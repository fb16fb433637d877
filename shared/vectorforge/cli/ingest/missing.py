"""Documents of ingested folders whose files no longer exist."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import typer

from vectorforge.cli.ingest.run import IngestSummary
from vectorforge.cli.options import check_confirmable, confirm, source_name
from vectorforge.cli.session import Session
from vectorforge.db.tenant_database import storable_text
from vectorforge.errors import InvalidInputError

_UNSTORABLE = "\ufffd"
"""Stands in a stored source for what it cannot hold of a file's name; that file cannot be looked up."""


def check_prune(folders: Sequence[Path], *, in_collection: bool, yes: bool) -> None:
    """Check the options of ``--prune``.

    Raises:
        InvalidInputError: No folder is ingested into a collection, or confirmation is impossible.
    """
    if not folders or not in_collection:
        raise InvalidInputError(
            "--prune needs a folder that is ingested into a collection, without --dry-run or --profile.",
            field="--prune",
        )
    check_confirmable(yes=yes)


async def prune_missing(
    session: Session, summary: IngestSummary, folders: Sequence[Path], *, yes: bool
) -> None:
    """Delete the documents below folders whose files no longer exist, if confirmed.

    Reads all sources of the collection. Files that cannot be looked up count as existing.
    """
    files: dict[UUID, str] = {}
    for folder in folders:
        below = f"{source_name(folder).rstrip('/')}/"
        if storable_text(below) == below:
            files |= await session.services.documents.files_below(summary.collection.id, below)
    missing = await asyncio.to_thread(
        lambda: [document for document, file in files.items() if _is_gone(file)]
    )
    summary.missing_documents = len(missing)
    if not missing:
        return
    with suppress(typer.Abort):  # the documents of files are stored all the same
        confirm(f"Delete the documents of files that no longer exist ({len(missing)})?", yes=yes)
        for document in missing:
            if _is_gone(files[document]) and await session.services.vector_store.delete_document(document):
                summary.pruned_documents += 1


def _is_gone(file: str) -> bool:
    if _UNSTORABLE in file:
        return False
    try:
        os.lstat(file)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
