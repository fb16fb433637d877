"""EPUB books: chapters by the reader of HTML, metadata by lxml."""

from collections.abc import Iterator
from posixpath import dirname, join, normpath
from typing import Any, Final
from urllib.parse import unquote
from zipfile import ZipFile

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Block, Reading
from vectorforge.ingestion.extract.decode import open_archive, read_member
from vectorforge.ingestion.extract.readers.html import chapter_blocks
from vectorforge.ingestion.extract.readers.xml import local_name, parse_xml

_FIELDS: Final = {"creator": "author", "language": "language", "date": "date", "publisher": "publisher"}
"""Dublin Core element -> name in the metadata."""


def read_epub(content: bytes) -> Reading:
    """Read the chapters of a book in the order of its spine, without the table of contents.

    Returns:
        The book's title; ``author``, ``language``, ``date`` and ``publisher`` as metadata.

    Raises:
        ExtractionError: ``unreadable``, ``encrypted`` (protected against copying) or ``too_large``.
    """
    archive = open_archive(content)
    if "META-INF/rights.xml" in archive.NameToInfo:
        raise ExtractionError("The book is protected against copying.", reason="encrypted")
    container = parse_xml(read_member(archive, "META-INF/container.xml"))
    path = next(
        (found.get("full-path", "") for found in container.iter() if local_name(found) == "rootfile"), ""
    )
    package = parse_xml(read_member(archive, path))
    fields: dict[str, str] = {}
    for found in package.iter():
        text = " ".join((found.text or "").split())
        if text and isinstance(found.tag, str) and found.tag.startswith("{http://purl.org/dc/elements/1.1/}"):
            fields.setdefault(local_name(found), text[:1_000])
    metadata = {name: fields[key] for key, name in _FIELDS.items() if key in fields}
    return Reading(_chapters(archive, package, dirname(path)), fields.get("title"), metadata=metadata)


def _chapters(archive: ZipFile, package: Any, folder: str) -> Iterator[Block]:
    paths = {
        found.get("id"): normpath(join(folder, unquote(found.get("href", ""))))
        for found in package.iter()
        if local_name(found) == "item" and "nav" not in found.get("properties", "").split()
    }
    for found in package.iter():
        path = paths.get(found.get("idref")) if local_name(found) == "itemref" else None
        if path is not None and found.get("linear") != "no" and path in archive.NameToInfo:
            yield from chapter_blocks(read_member(archive, path))
