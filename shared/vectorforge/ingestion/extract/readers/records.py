"""Tables, JSON and JSONL as readable text.

A row of a table or an object of a JSON file becomes one paragraph, "name: value; name: value". Each line of a
JSONL file is a document of its own.
"""

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Block, BlockKind, Reading, Row, heading, paragraph
from vectorforge.ingestion.extract.decode import clean, clean_json, decode, replaced_warning
from vectorforge.ingestion.extract.media import PLAIN, RECORD
from vectorforge.ingestion.types import MAX_SOURCE_CHARS, DocumentPart, ExtractedDocument

_MAX_PATH_CHARS = 300
"""Maximum length of the key path to a value; the last characters are used."""
_TEXT_FIELDS = ("text", "content", "body")
_ID_FIELDS = ("doc_id", "id", "source", "url")
_HASH_CHARS = 16
"""64 bits: equal for two different lines of a file of millions once in a million files."""
_DELIMITERS = ",;\t|"
_MAX_TITLE_ROWS = 10
_HEAD_CHARS = 10_000
_SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n")
"""First line of tables for Excel."""


def read_table(content: bytes, *, charset: str | None = None, delimiter: str | None = None) -> Reading:
    """Read a table as text: its first row names the columns, after up to 10 lines that are a title.

    Args:
        content: The file.
        charset: From the Content-Type header.
        delimiter: Delimiter; None selects the most frequent of ``, ; tab |`` in the first row.

    Raises:
        ExtractionError: ``undecodable``, or ``unreadable``: quotes do not match up or a value is over 128 KB.
    """
    text, warnings = decode(content, charset)
    if found := _SEPARATOR_LINE.match(text):
        delimiter, text = found[1], text[found.end() :]
    lines = io.StringIO(text.lstrip()[:_HEAD_CHARS])
    first_line = next((line for line in lines if any(one in line for one in _DELIMITERS)), "")
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter or max(_DELIMITERS, key=first_line.count),
        strict=True,
    )
    return Reading(_table(reader), warnings=warnings)


def read_tsv(content: bytes, *, charset: str | None = None) -> Reading:
    """Read a table whose values are separated by tabs; see ``read_table``."""
    return read_table(content, charset=charset, delimiter="\t")


def _table(reader: Any) -> Iterator[Block]:
    header: list[str] | None = None
    try:
        rows = ((number, row) for number, row in enumerate(reader, start=1) if any(map(str.strip, row)))
        head = list(islice(rows, _MAX_TITLE_ROWS + 1))
        titles = 0
        while titles < len(head) and _is_title(head[titles][1]):
            titles += 1
        if len({len(row) for _, row in head[titles : titles + 2]}) != 1 or titles + 2 > len(head):
            titles = 0  # a table of one column
        for number, row in chain(head, rows):
            location = {"cells": [1, number, len(row), number]}
            if titles:
                titles -= 1
                yield paragraph(" ".join(filter(None, row)), location)
            elif header is None:
                header = row
            else:
                yield Block(BlockKind.TABLE, header=header, rows=[Row(row, location)])
    except csv.Error as exc:
        raise ExtractionError(
            f"Line {reader.line_num} of the table cannot be read: check its quotes; a value may have at most "
            f"{csv.field_size_limit():,} characters."
        ) from exc


def _is_title(row: Sequence[str]) -> bool:
    return len(row) != 2 and sum(1 for cell in row if cell.strip()) == 1


def split_records(content: bytes, source: str) -> Iterator[DocumentPart]:
    """One part for each line that is not blank, in order.

    Its source is ``<file>#<id>``, the id being the first of ``doc_id``, ``id``, ``source`` and ``url`` that
    the line has, else the hash of the line: a line keeps its source when others come or go. What came before
    is made unique by how often it came. Lines that are no JSON objects are parts too, named by their number;
    reading them gives the error.

    Raises:
        ExtractionError: ``undecodable``: the file as a whole is not text.
    """
    text, _ = decode(content)
    seen: Counter[str] = Counter()
    for number, line in enumerate(
        text.split("\n"), start=1
    ):  # splitlines() would cut at U+2028 inside strings
        if not line.strip():
            continue
        yield DocumentPart(
            line.encode("utf-8"), f"{source}#{_name_of(line, number, source, seen)}", RECORD, source
        )


def extract_record(content: bytes, source: str) -> ExtractedDocument:
    """Read one line of a JSONL file.

    The text is the field ``text``, ``content`` or ``body``, unchanged but for NUL and lone surrogates, so
    that offsets into it are offsets into the field. ``title`` is the title. The metadata are the object
    ``metadata`` and every other field that is a scalar or a list of scalars.

    Raises:
        ExtractionError: ``unreadable`` (no JSON object, no text field).
    """
    record = _parse(content.decode("utf-8"))
    name = next((field for field in _TEXT_FIELDS if isinstance(record.get(field), str)), None)
    if name is None:
        raise ExtractionError(
            "No text in the field text, content or body: rename a field, or convert the file to JSON or CSV."
        )
    text, in_text = clean(record[name])
    title, in_title = clean(record["title"]) if isinstance(record.get("title"), str) else (None, 0)
    metadata, in_metadata = clean_json(_metadata(record, name))
    replaced = in_text + in_title + in_metadata
    return ExtractedDocument(
        source=source,
        text=text,
        media_type=PLAIN,
        title=title,
        metadata=metadata,
        warnings=(replaced_warning(replaced),) if replaced else (),
    )


def _metadata(record: Mapping[str, Any], text_field: str) -> dict[str, Any]:
    own = record.get("metadata")
    rest = {
        key: value
        for key, value in record.items()
        if key not in (text_field, "title", "metadata") and _is_scalar_or_list(value)
    }
    return {**rest, **(own if isinstance(own, Mapping) else {})}


def _is_scalar_or_list(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, (str, int, float, bool)) for item in items)


def _name_of(line: str, number: int, source: str, seen: Counter[str]) -> str:
    try:
        record = _parse(line)
    except ExtractionError:
        return str(number)
    name = _id_of(record)
    if name is None or len(source) + len(name) + 10 > MAX_SOURCE_CHARS:
        name = hashlib.sha256(line.strip().encode()).hexdigest()[:_HASH_CHARS]
    seen[name] += 1
    return name if seen[name] == 1 else f"{name}#{seen[name]}"


def _id_of(record: Mapping[str, Any]) -> str | None:
    for field in _ID_FIELDS:
        value = record.get(field)
        if isinstance(value, (str, int)) and not isinstance(value, bool) and str(value).strip():
            return clean(str(value))[0]
    return None


def _parse(line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise ExtractionError("The line is not valid JSON.") from exc
    if not isinstance(record, Mapping):
        raise ExtractionError("The line is not a JSON object.")
    return record


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


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


def read_json(content: bytes) -> Reading:
    """Read a JSON file as ``key: value; key: value``, a paragraph for each object.

    Keys of nested objects are joined by dots; the items of a list of objects are paragraphs, and a list of
    scalars is a value. A text of several lines is a paragraph of its own. Null and empty values are left out.
    A title that is the outermost object's only value on one line is a heading: what follows is its text.

    Returns:
        ``title`` is the field of this name of the outermost object.

    Raises:
        ExtractionError: ``unreadable`` or ``undecodable``.
    """
    text, warnings = decode(content)
    value = parse_json(text)
    title = value.get("title") if isinstance(value, Mapping) else None
    if not isinstance(title, str):
        return Reading(map(paragraph, _paragraphs(value)), None, warnings)
    texts = _paragraphs(value)
    first = next(texts, "")
    is_title = first == f"title: {title.strip()}"
    return Reading(
        chain([heading(title) if is_title else paragraph(first)], map(paragraph, texts)), title, warnings
    )


def _paragraphs(value: Any) -> Iterator[str]:
    pending = [("", value)]  # not recursive: JSON may be nested deeper than Python may call
    while pending:
        path, value = pending.pop()
        if isinstance(value, Mapping):
            named = [(f"{path}.{key}".lstrip(".")[-_MAX_PATH_CHARS:], inner) for key, inner in value.items()]
            pairs = [f"{name}: {text}" for name, inner in named if (text := _on_one_line(inner))]
            if pairs:
                yield "; ".join(pairs)
            pending += [pair for pair in reversed(named) if _on_one_line(pair[1]) is None]
        elif isinstance(value, list) and _on_one_line(value) is None:
            pending += [(path, item) for item in reversed(value)]
        elif text := _on_one_line(value) or str(value or "").strip():
            yield f"{path}: {text}" if path else text


def _on_one_line(value: Any) -> str | None:
    """Return a scalar or a list of scalars as text; None for values of several lines."""
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
