"""Rich text (RTF), by striprtf."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Block, Reading, Row, comment, paragraph, table

_TOKEN: Final = re.compile(r"\\(?:[a-z]+|.)|[{}]", re.IGNORECASE | re.DOTALL)
_MOVED: Final = re.compile(r"\{\s*(?:\\\*)?\s*\\(footnote|annotation|shp)(?![a-z])")
_BOX_TEXT: Final = re.compile(r"\{\s*\\shptxt(?![a-z])")
_HIDDEN: Final = re.compile(
    rb"(\{(?:\\[a-z]+-?\d* ?)*?)(\\(?:v|deleted)(?![a-z0-9]))(?!(?:\\[a-z]+-?\d*|\s){0,20}\{\\\*\\atn)"
)  # not the mark of a comment, which may be hidden
_BEFORE_NOTE: Final = "\ue000"
_COMMENT: Final = "\ue003"
_REFERENCE: Final = re.compile("\ue001([0-9]{1,6})\ue002")
"""Private characters, which mark footnotes, comments, text boxes and references to them for striprtf."""


def read_rtf(content: bytes) -> Reading:
    """Read the text of a rich text file, without its pictures and its formatting; cells of tables as rows.

    Footnotes, comments and text boxes follow their paragraph or table.

    Raises:
        ExtractionError: ``unreadable``.
    """
    from striprtf.striprtf import remove_pict_groups, rtf_to_text

    try:
        content = _HIDDEN.sub(rb"\1\\*\2", content)
        markup, count = _with_notes_at_end(remove_pict_groups(content.decode("latin-1")))  # type: ignore[no-untyped-call]
        text = str(rtf_to_text(markup, errors="replace"))  # type: ignore[no-untyped-call]
    except MemoryError:
        raise
    except Exception as exc:  # invalid control words raise many kinds
        raise ExtractionError("The rich text is damaged and cannot be read.") from exc
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins the halves of emoji
    text, *notes = text.rsplit(_BEFORE_NOTE, count)
    return Reading(_blocks(text.strip(), notes))


def _with_notes_at_end(markup: str) -> tuple[str, int]:
    """Move footnotes, comments and text boxes, which striprtf skips, to the end; return their number."""
    body, notes = list[str](), list[str]()
    at = depth = 0
    opening, outside = None, 0
    box, within, texts = None, 0, list[str]()
    for found in _TOKEN.finditer(markup):
        if found[0] == "{":
            if opening is None and (opening := _MOVED.match(markup, found.start())):
                outside, texts = depth, []
            elif opening is not None and box is None and (box := _BOX_TEXT.match(markup, found.start())):
                within = depth
            depth += 1
        elif found[0] == "}":
            depth -= 1
            if box is not None and depth == within:
                texts.append(markup[box.end() : found.end()])
                box = None
            if opening is not None and depth == outside:
                texts = texts if opening[1] == "shp" else [markup[opening.end() : found.end()]]
                body.append(markup[at : opening.start()])
                if texts:
                    body.append(f"{{\ue001{len(notes)}\ue002}}")
                    mark = _COMMENT if opening[1] == "annotation" else ""
                    notes.append(f"{{{_BEFORE_NOTE}{mark}{' {'.join(texts)}")
                at, opening = found.end(), None
            elif depth <= 0:
                return "".join([*body, markup[at : found.start()], *notes, "}"]), len(notes)
    return "".join([*body, markup[at:], *notes]), len(notes)


def _blocks(text: str, notes: Sequence[str]) -> Iterator[Block]:
    """Yield runs of lines; striprtf ends each cell of a table with "|" and each row with a line break."""
    lines: list[str] = []
    rows: list[Row] = []
    found: list[str] = []
    for marked in [*text.split("\n"), ""]:
        line = _REFERENCE.sub("", marked)
        is_row = line.rstrip().endswith("|") and line.count("|") > 1
        if rows and not is_row:
            yield from [*table(rows), *_notes(found, notes)]
            rows, found = [], []
        if lines and (is_row or not line.strip()):
            yield paragraph("\n".join(lines))
            lines = []
        if is_row:
            rows.append(Row([cell.strip() for cell in line.rstrip()[:-1].split("|")]))
        elif line.strip():
            lines.append(line)
        found += _REFERENCE.findall(marked)
        if found and not rows:
            yield from [paragraph("\n".join(lines)), *_notes(found, notes)]
            lines, found = [], []


def _notes(found: Sequence[str], notes: Sequence[str]) -> list[Block]:
    texts = (" ".join(notes[int(one)].split()) for one in found if int(one) < len(notes))
    return [comment(text[1:]) if text.startswith(_COMMENT) else paragraph(text) for text in texts]
