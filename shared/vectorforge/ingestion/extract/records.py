"""JSONL: every line is a document of its own, with its own result."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.decode import clean, clean_json, decode
from vectorforge.ingestion.extract.media import PLAIN, RECORD
from vectorforge.ingestion.types import MAX_SOURCE_CHARS, DocumentPart, ExtractedDocument

_TEXT_FIELDS = ("text", "content", "body")
_ID_FIELDS = ("doc_id", "id", "source", "url")


def split_records(content: bytes, source: str) -> Iterator[DocumentPart]:
    """One part for each line that is not blank, in order.

    Its source is ``<file>#<id>``, the id being the first of ``doc_id``, ``id``, ``source`` and ``url`` that
    the line has, else the number of the line from 1. An id that came before is made unique by the number.
    Lines that are no JSON objects are parts too; reading them gives the error.

    Raises:
        ExtractionError: ``undecodable``: the file as a whole is not text.
    """
    text, _ = decode(content)
    seen: set[str] = set()
    for number, line in enumerate(
        text.split("\n"), start=1
    ):  # splitlines() would cut at U+2028 inside strings
        if not line.strip():
            continue
        name = _id_of(line) or str(number)
        if name in seen:
            name = f"{name}#{number}"
        seen.add(name)
        part_source = f"{source}#{name}"
        if len(part_source) > MAX_SOURCE_CHARS:
            part_source = f"{source}#{number}"
        yield DocumentPart(line.encode("utf-8"), part_source, RECORD)


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
        raise ExtractionError(f"The line has no text in one of the fields {', '.join(_TEXT_FIELDS)}.")
    text, in_text = clean(record[name])
    title, in_title = clean(record["title"]) if isinstance(record.get("title"), str) else (None, 0)
    metadata, in_metadata = clean_json(_metadata(record, name))
    replaced = in_text + in_title + in_metadata
    warnings = (f"Replaced {replaced} characters that cannot be stored (NUL or lone surrogates).",)
    return ExtractedDocument(
        source=source,
        text=text,
        media_type=PLAIN,
        title=title,
        metadata=metadata,
        warnings=warnings if replaced else (),
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


def _id_of(line: str) -> str | None:
    try:
        record = _parse(line)
    except ExtractionError:
        return None
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
