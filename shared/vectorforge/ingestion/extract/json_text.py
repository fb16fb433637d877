"""JSON as readable text: a paragraph an object; runs in the child process only (``isolation``).

Jupyter notebooks as Markdown; runs in the child process only (``isolation``).
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean, decode
from vectorforge.ingestion.extract.markdown import code_fence, first_heading, without_comments
from vectorforge.ingestion.types import ReadText

_MAX_PATH_CHARS = 300
"""Of the keys that lead to a value; the last ones count."""


def parse_json(text: str) -> Any:
    """Parse JSON; numbers stay as they are written.

    Raises:
        ExtractionError: ``unreadable``, with the place and what to do.
    """
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except json.JSONDecodeError as exc:
        if exc.msg == "Extra data":
            advice = "Name a file with a JSON object on each line .jsonl."
        else:
            advice = "Correct it, or name the file .txt to store it as plain text."
        raise ExtractionError(f"Invalid JSON at line {exc.lineno}, column {exc.colno}. {advice}") from exc
    except RecursionError as exc:
        raise ExtractionError("The JSON is nested too deeply.") from exc


def extract_json(content: bytes, *, max_chars: int) -> ReadText:
    """Read a JSON file as ``key: value; key: value``, a paragraph for each object.

    Keys of nested objects are joined by dots; the items of a list of objects are paragraphs, and a list of
    scalars is a value. A text of several lines is a paragraph of its own. Null and empty values are left out.

    Args:
        content: The file.
        max_chars: Reading stops when the text is longer.

    Returns:
        ``title`` is the field of this name of the outermost object.

    Raises:
        ExtractionError: ``unreadable``, ``undecodable``, ``too_large`` or ``empty``.
    """
    text, warnings = decode(content)
    value = parse_json(text)
    paragraphs, total = [], 0
    for paragraph in _paragraphs(value):
        total += len(paragraph) + 2
        if total > max_chars:
            raise ExtractionError(f"The text is longer than {max_chars:,} characters.", reason="too_large")
        paragraphs.append(clean(paragraph)[0])
    if not paragraphs:
        raise ExtractionError("The JSON holds no values.", reason="empty")
    title = value.get("title") if isinstance(value, Mapping) else None
    return {
        "text": "\n\n".join(paragraphs),
        "title": clean(title)[0] if isinstance(title, str) else None,
        "page_starts": [],
        "warnings": warnings,
    }


def _paragraphs(value: Any) -> Iterator[str]:
    waiting = [("", value)]  # not recursive: JSON may be nested deeper than Python may call
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            named = [(f"{path}.{key}".lstrip(".")[-_MAX_PATH_CHARS:], inner) for key, inner in value.items()]
            pairs = [f"{name}: {text}" for name, inner in named if (text := _on_one_line(inner))]
            if pairs:
                yield "; ".join(pairs)
            waiting += [pair for pair in reversed(named) if _on_one_line(pair[1]) is None]
        elif isinstance(value, list) and _on_one_line(value) is None:
            waiting += [(path, item) for item in reversed(value)]
        elif text := _on_one_line(value) or str(value or "").strip():
            yield f"{path}: {text}" if path else text


def _on_one_line(value: Any) -> str | None:
    """Return a scalar, or a list of scalars, as text; None for anything that takes more than a line."""
    if isinstance(value, list):
        texts = [None if isinstance(item, list) else _on_one_line(item) for item in value]
        return None if None in texts else ", ".join(text for text in texts if text)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, str) and "\n" not in value.strip():
        return value.strip()
    return None


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
