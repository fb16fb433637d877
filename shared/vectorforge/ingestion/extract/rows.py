"""CSV and TSV: one paragraph a row, "column: value; column: value"."""

import csv
import io

from vectorforge.errors import ExtractionError

_DELIMITERS = ",;\t|"


def extract_rows(text: str, *, delimiter: str | None = None) -> str:
    """Turn a table into prose that can be searched.

    Args:
        text: The file; its first row names the columns.
        delimiter: Between values; None takes whichever of ``, ; tab |`` the first row has most of.

    Returns:
        One paragraph for each row that has a value.

    Raises:
        ExtractionError: ``unreadable``: quotes do not match up or a value is over 128 KB.
    """
    first_line = text.lstrip().partition("\n")[0]
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter or max(_DELIMITERS, key=first_line.count),
        strict=True,
    )
    try:
        columns = [" ".join(name.split()) for name in next(reader, [])]
        rows = [paragraph for row in reader if (paragraph := _paragraph(columns, row))]
    except csv.Error as exc:
        raise ExtractionError(
            f"Line {reader.line_num} of the table cannot be read: check its quotes; a value may have at most "
            f"{csv.field_size_limit():,} characters."
        ) from exc
    return "\n\n".join(rows)


def _paragraph(columns: list[str], row: list[str]) -> str:
    pairs = []
    for index, value in enumerate(row):
        value = " ".join(value.split())
        if value:
            name = columns[index] if index < len(columns) and columns[index] else f"column {index + 1}"
            pairs.append(f"{name}: {value}")
    return "; ".join(pairs)
