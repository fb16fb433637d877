"""Markdown and notebooks: front matter becomes title and metadata, comments are dropped, code is fenced."""

import datetime
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Block, BlockKind, Reading, code, paragraph
from vectorforge.ingestion.extract.decode import clean_json, decode
from vectorforge.ingestion.extract.readers.records import parse_json
from vectorforge.ingestion.types import ReadText, SpanKind, TextSpan

_MAX_FRONT_MATTER_CHARS = 16_384
"""Limit for the parsers of YAML and TOML, which are written in Python: 0.1 s."""
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n")
_YAML_END = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_TOML_END = re.compile(r"^\+\+\+[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TITLE = re.compile(r"^#[ \t]+([^\n]{1,300})$", re.MULTILINE)
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_TABLE_CHARS = 600
"""Characters of a table from which on its header is repeated, to be in every chunk of the default size."""
_INVALID = "The front matter is not {} and was kept as text."


def read_markdown(text: str, warnings: list[str]) -> ReadText:
    """Read decoded Markdown.

    Front matter is YAML between ``---`` lines or TOML between ``+++`` lines at the start, at most 16,384
    characters. Its ``title`` is the title; its other scalars and lists of scalars are metadata. Anything else
    at the start is text.

    Args:
        text: The file.
        warnings: Of its decoding; returned with those of its front matter.
    """
    fields, text, problems = _split_front_matter(text)
    text, spans = _with_repeated_headers(without_comments(text))
    title = fields.pop("title", None)
    return {
        "text": text,
        "spans": spans,
        "title": title if isinstance(title, str) and title.strip() else first_heading(text),
        "warnings": [*warnings, *problems],
        "metadata": fields,
    }


def first_heading(text: str) -> str | None:
    """Return the text of the first ``# heading``, or None."""
    match = _TITLE.search(text)
    return match[1].strip(" \t\r#") if match else None


def without_comments(text: str) -> str:
    """Drop ``<!-- comments -->`` outside of code, in linear time; one that is never closed stays."""
    last_end = text.rfind("-->")
    if "<!--" not in text or last_end < 0:
        return text
    remover = _CommentRemover(last_end)
    return "".join(remover.remove_from(line) for line in text.splitlines(keepends=True))


class _CommentRemover:
    """Removes comments line by line."""

    def __init__(self, last_end: int) -> None:
        self._last_end = last_end
        self._offset = 0
        self._fence = ""
        self._in_comment = False

    def remove_from(self, line: str) -> str:
        """Return the next line without comments; empty if it had nothing else."""
        start, self._offset = self._offset, self._offset + len(line)
        if not self._in_comment and self._is_code(line):
            return line
        rest = self._outside(line, start)
        return rest if rest.strip() or not line.strip() else ""

    def _is_code(self, line: str) -> bool:
        match = _FENCE.match(line)
        if self._fence:
            if match and match[1].startswith(self._fence) and line.strip() == match[1]:
                self._fence = ""
            return True
        if match:
            self._fence = match[1]
        return bool(match)

    def _outside(self, line: str, start: int) -> str:
        rest, at, ticks = [], 0, 0
        while at < len(line):
            if self._in_comment:
                end = line.find("-->", at)
                if end < 0:
                    rest.append("\n" if line.endswith("\n") else "")
                    break
                self._in_comment, at = False, end + 3
                continue
            begin = line.find("<!--", at)
            if begin < 0 or start + begin + 4 > self._last_end:
                rest.append(line[at:])
                break
            ticks += line.count("`", at, begin)
            self._in_comment = ticks % 2 == 0
            skipped = begin + (0 if self._in_comment else 4)
            rest.append(line[at:skipped])
            at = begin + 4
        return "".join(rest)


def _with_repeated_headers(text: str) -> tuple[str, list[TextSpan]]:
    """Repeat the header of a long table after every 600 characters; also return the parts of all tables."""
    if "|" not in text or "-" not in text:
        return text, []
    done: list[str] = []
    spans: list[TextSpan] = []
    size, fence = 0, ""
    lines = text.splitlines(keepends=True)
    at = 0
    while at < len(lines):
        marker = _FENCE.match(lines[at])
        if marker and not fence:
            fence = marker[1]
        elif marker and marker[1].startswith(fence) and lines[at].strip() == marker[1]:
            fence = ""
        end = at + 1 if fence else _table_end(lines, at)
        parts = ["".join(lines[at:end])] if end == at + 1 else _table_parts(lines[at:end])
        for part in parts:
            if end > at + 1:
                spans.append(TextSpan(size, size + len(part.rstrip()), SpanKind.ROW))
            done.append(part)
            size += len(part)
        at = end
    return "".join(done), spans


def _table_end(lines: list[str], at: int) -> int:
    """Return the line after the table that starts at a line, the next line if none does."""
    end = at + 2
    if (
        "|" not in lines[at]
        or end > len(lines)
        or not ("|" in lines[at + 1] and _RULE.fullmatch(lines[at + 1].rstrip()))
    ):
        return at + 1
    while end < len(lines) and "|" in lines[end]:
        end += 1
    return end


def _table_parts(lines: list[str]) -> list[str]:
    header = "".join(lines[:2])
    parts = [header]
    for row in lines[2:]:
        if len(parts[-1]) + len(row) > _TABLE_CHARS and len(parts[-1]) > len(header):
            parts[-1] = parts[-1].rstrip("\r\n") + "\n\n"
            parts.append(header)
        parts[-1] += row
    return parts


def _split_front_matter(text: str) -> tuple[dict[str, Any], str, list[str]]:
    """Return the fields, the text without them, and what is wrong with them."""
    begin = _FRONT_MATTER.match(text)
    if begin is None:
        return {}, text, []
    is_toml = begin[1] == "+++"
    until = begin.end() + _MAX_FRONT_MATTER_CHARS
    end = (_TOML_END if is_toml else _YAML_END).search(text, begin.end(), until)
    if end is None:
        return {}, text, []
    front_matter = text[begin.end() : end.start()]
    fields = _parse_toml(front_matter) if is_toml else _parse_yaml(front_matter)
    if not isinstance(fields, Mapping):
        return {}, text, [_INVALID.format("valid TOML" if is_toml else "a YAML mapping")]
    values = {key: _storable(value) for key, value in fields.items() if isinstance(key, str)}
    cleaned, _ = clean_json({key: value for key, value in values.items() if value is not None})
    return dict(cleaned), text[end.end() :].lstrip("\r\n"), []


def _parse_toml(front_matter: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(front_matter)
    except (ValueError, RecursionError):
        return None


def _parse_yaml(front_matter: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc] # shipped without types
        """Without aliases: a few lines of them can stand for gigabytes."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not read")
            return super().compose_node(parent, index)

    try:
        return yaml.load(front_matter, Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, RecursionError):
        return None


def _storable(value: Any) -> Any:
    """Return a scalar or a list of scalars as JSON has it, or None for anything else."""
    if isinstance(value, list):
        items = [None if isinstance(item, list) else _storable(item) for item in value]
        return None if None in items else items
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) else None


def read_notebook(content: bytes) -> Reading:
    """Read the Markdown and code cells of a notebook; outputs and raw cells are left out.

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
    language = _kernel_language(notebook.get("metadata"))
    blocks = [block for cell in cells for block in _cell_blocks(cell, language)]
    if not blocks:
        raise ExtractionError("The notebook has no Markdown and no code cells.", reason="empty")
    titles = filter(
        None, (first_heading(block.text) for block in blocks if block.kind is BlockKind.PARAGRAPH)
    )
    return Reading(blocks, next(titles, None), warnings)


def _cell_blocks(cell: Any, language: str) -> Iterator[Block]:
    if not isinstance(cell, Mapping):
        raise ExtractionError("A cell of the notebook is not a JSON object.")
    source = cell.get("source")
    lines = source if isinstance(source, list) else [source]
    text = "".join(line for line in lines if isinstance(line, str)).strip()
    if text and cell.get("cell_type") == "markdown":
        yield paragraph(without_comments(text))
    elif text and cell.get("cell_type") == "code":
        yield code(text, language)


def _kernel_language(metadata: Any) -> str:
    if not isinstance(metadata, Mapping):
        return ""
    for part, field in (("kernelspec", "language"), ("language_info", "name")):
        value = metadata.get(part)
        name = value.get(field) if isinstance(value, Mapping) else None
        if isinstance(name, str) and _LANGUAGE.fullmatch(name):
            return name
    return ""
