"""Jupyter notebooks as Markdown; runs in the child process only (``isolation``)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean, decode
from vectorforge.ingestion.extract.json_text import parse_json
from vectorforge.ingestion.extract.markdown import code_fence, first_heading, without_comments
from vectorforge.ingestion.types import ReadText

_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


def extract_notebook(content: bytes) -> ReadText:
    """Read the Markdown and code cells of a notebook; outputs and raw cells are left out.

    Args:
        content: The file, in nbformat 4.

    Returns:
        Code in fences of the kernel's language; the first heading as ``title``.

    Raises:
        ExtractionError: ``unreadable``, ``undecodable`` or ``empty``.
    """
    text, warnings = decode(content)
    notebook = parse_json(text)
    cells = notebook.get("cells") if isinstance(notebook, Mapping) else None
    if not isinstance(cells, list) or notebook.get("nbformat") != "4":
        raise ExtractionError("This is not a notebook of nbformat 4; open it in Jupyter and save it again.")
    language = _language(notebook.get("metadata"))
    blocks = [block for cell in cells for block in _blocks(cell, language)]
    if not blocks:
        raise ExtractionError("The notebook has no Markdown and no code cells.", reason="empty")
    read = clean("\n\n".join(blocks))[0]
    return {"text": read, "title": first_heading(read), "page_starts": [], "warnings": warnings}


def _blocks(cell: Any, language: str) -> Iterator[str]:
    if not isinstance(cell, Mapping):
        raise ExtractionError("A cell of the notebook is not a JSON object.")
    source = cell.get("source")
    lines = source if isinstance(source, list) else [source]
    text = "".join(line for line in lines if isinstance(line, str)).strip()
    if text and cell.get("cell_type") == "markdown":
        yield without_comments(text)
    elif text and cell.get("cell_type") == "code":
        yield "\n".join(code_fence(text, language))


def _language(metadata: Any) -> str:
    if not isinstance(metadata, Mapping):
        return ""
    for part, field in (("kernelspec", "language"), ("language_info", "name")):
        found = metadata.get(part)
        name = found.get(field) if isinstance(found, Mapping) else None
        if isinstance(name, str) and _LANGUAGE.fullmatch(name):
            return name
    return ""
