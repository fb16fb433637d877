"""Rich text, by striprtf."""

from collections.abc import Iterator

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Block, Reading, Row, paragraph, table


def read_rtf(content: bytes) -> Reading:
    """Read the text of a rich text file, without its pictures and its formatting; cells of tables as rows.

    Raises:
        ExtractionError: ``unreadable``.
    """
    from striprtf.striprtf import rtf_to_text

    try:
        text = str(rtf_to_text(content.decode("latin-1"), errors="replace"))  # type: ignore[no-untyped-call]
    except MemoryError:
        raise
    except Exception as exc:  # invalid control words raise many kinds
        raise ExtractionError("The rich text is damaged and cannot be read.") from exc
    return Reading(_blocks(text.strip()))


def _blocks(text: str) -> Iterator[Block]:
    """Yield runs of lines; striprtf ends each cell of a table with "|" and each row with a line break."""
    lines: list[str] = []
    rows: list[Row] = []
    for line in [*text.split("\n"), ""]:
        is_row = line.rstrip().endswith("|") and line.count("|") > 1
        if rows and not is_row:
            yield from table(rows)
            rows = []
        if lines and (is_row or not line.strip()):
            yield paragraph("\n".join(lines))
            lines = []
        if is_row:
            rows.append(Row([cell.strip() for cell in line.rstrip()[:-1].split("|")]))
        elif line.strip():
            lines.append(line)
    if lines:
        yield paragraph("\n".join(lines))
