"""Chunks of made documents, and archives of given files."""

import io
import zipfile
from collections.abc import Mapping

from tests.support.documents import one
from tests.support.formats.truth import Made
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks
from vectorforge.types import ChunkDraft


def chunks(made: Made) -> list[ChunkDraft]:
    return draft_chunks(one(made.content, made.source), ChunkingConfig())


def zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()
