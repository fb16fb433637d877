"""Workbooks (XLSX, XLSM, XLSB, XLS, ODS), by python-calamine."""

import datetime
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract.blocks import Block, BlockKind, Reading, Row, heading, paragraph
from vectorforge.ingestion.extract.decode import open_archive
from vectorforge.ingestion.extract.readers.number_formats import FormattedNumber
from vectorforge.ingestion.extract.readers.opendocument import OdsParts
from vectorforge.ingestion.extract.readers.sheet_parts import SheetCells, SheetParts, unstored_formulas
from vectorforge.ingestion.types import MAX_SOURCE_CHARS, cell_range

_ZIP: Final = b"PK\x03\x04"
_NumberedRow: TypeAlias = tuple[int, list[Any]]
_MAX_NAME_CHARS: Final = MAX_SOURCE_CHARS // 10


def read_workbook(content: bytes) -> Reading:
    """Read the visible sheets, each as a heading with its tables; formulas have the values that were stored.

    Empty rows end a table. A row with one cell above a table is a paragraph. The first row of a table is its
    header if all its cells are texts; a table without one continues with the header of the table above. A
    cell that is merged over several rows stands in each of them, one above the names of several columns
    before each name. A comment follows the value of its cell. Hidden rows and columns are left out, except
    those of a filter or a closed group.

    Raises:
        ExtractionError: ``unreadable``, ``encrypted`` or ``too_large``.
    """
    from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetVisibleEnum

    with open_archive(content) if content.startswith(_ZIP) else nullcontext() as archive:
        missing = unstored_formulas(archive) if archive else 0
        reader = OdsParts if archive and "content.xml" in archive.NameToInfo else SheetParts
        parts = reader(archive) if archive else None
        try:
            workbook = CalamineWorkbook.from_filelike(io.BytesIO(content))
            hidden = [one.name for one in workbook.sheets_metadata if one.visible != SheetVisibleEnum.Visible]
            blocks, unshown = list[Block](), 0
            for name in workbook.sheet_names:
                if name not in hidden:
                    cells = parts.sheet(name) if parts else SheetCells()
                    blocks += _sheet(name, workbook.get_sheet_by_name(name), cells)
                    unshown += len(cells.rows) + len(cells.columns)
        except PasswordError as exc:
            raise ExtractionError("The workbook is protected by a password.", reason="encrypted") from exc
        except CalamineError as exc:
            raise ExtractionError("The workbook is damaged and cannot be read.") from exc
    warnings = [f"Hidden sheets were left out: {len(hidden)}."] if hidden else []
    if unshown:
        warnings.append(f"Hidden rows and columns were left out: {unshown:,}.")
    if missing:
        warnings.append(
            f"Formulas without a stored value were left out: {missing:,}. "
            "Save the workbook in a spreadsheet program."
        )
    return Reading(blocks, warnings=warnings)


def _sheet(name: str, sheet: Any, parts: SheetCells) -> Iterator[Block]:
    first_row, first_column = sheet.start or (0, 0)
    blocks: list[Block] = []
    area: list[_NumberedRow] = []
    rows = sheet.to_python(skip_empty_area=True)
    for row, column, code in parts.formats:
        row, column = row - first_row, column - first_column
        if 0 <= row < len(rows) and 0 <= column < len(rows[row]):
            rows[row][column] = parts.shown(rows[row][column], code)
    groups = _groups(rows, sheet, parts)
    _hide(rows, groups, sheet.start or (0, 0), parts)
    areas = _Areas(name[:_MAX_NAME_CHARS], first_column, groups, parts.comments, parts.columns, {})
    for number, cells in enumerate([*rows, []], start=first_row + 1):
        if number - 1 in parts.rows:
            continue
        if any(_shown(cell) for cell in cells):
            area.append((number, cells))
        elif area:
            for part in _side_by_side(area, {at - first_column for at in parts.columns}):
                blocks += areas.read(part)
            area = []
    blocks += areas.other_comments()
    if blocks:
        yield heading(areas.sheet, 1, {"sheet": areas.sheet})
        yield from blocks


def _groups(rows: list[list[Any]], sheet: Any, parts: SheetCells) -> dict[int, list[Any]]:
    """Repeat merged cells, and return the rows by number in which cells are merged over columns."""
    first_row, first_column = sheet.start or (0, 0)
    groups: dict[int, list[Any]] = {}
    for (top, column), (bottom, last) in sheet.merged_cell_ranges or ():
        top, column, last = top - first_row, column - first_column, last - first_column
        if last > column >= 0 and 0 <= top < len(rows):
            cells = groups.setdefault(top + first_row + 1, [*rows[top]])
            covered = range(column, min(last + 1, len(cells)))
            cells[column : last + 1] = [cells[column]] * len(covered)
            if shown := [at for at in covered if at + first_column not in parts.columns]:
                rows[top][shown[0]] = rows[top][column]
        _repeat(rows, top, bottom - first_row, column)
    return groups


def _hide(
    rows: list[list[Any]], groups: Mapping[int, list[Any]], start: tuple[int, int], parts: SheetCells
) -> None:
    """Remove values and comments of hidden columns; rows and columns without any do not count as hidden."""
    for row, column in [*parts.comments]:
        if row in parts.rows or column in parts.columns:
            del parts.comments[row, column]
    parts.rows = {at for at, cells in enumerate(rows, start[0]) if at in parts.rows and _filled(cells)}
    hidden = [at for at in range(len(rows[0]) if rows else 0) if at + start[1] in parts.columns]
    parts.columns = {at + start[1] for at in hidden if any(_shown(cells[at]) for cells in rows)}
    for cells in (*rows, *groups.values()):
        for at in hidden:
            cells[at] = ""


def _repeat(rows: list[list[Any]], top: int, bottom: int, column: int) -> None:
    """Repeat the value of a merged cell in its other rows, unless they are empty."""
    if not (0 <= top < len(rows) and 0 <= column < len(rows[0])):
        return
    for cells in rows[top + 1 : bottom + 1]:
        if _filled(cells):
            cells[column] = rows[top][column]


def _side_by_side(rows: list[_NumberedRow], hidden: set[int]) -> Iterator[list[_NumberedRow]]:
    """Yield the tables that empty columns divide; a table with an empty column is one."""
    used = [at in hidden or any(cells[at] != "" for _, cells in rows) for at in range(len(rows[0][1]))]
    runs = [[*run] for is_used, run in groupby(range(len(used)), key=used.__getitem__) if is_used]
    parts = runs[:1]
    for run in runs[1:]:
        if _are_apart(rows, parts[-1], run):
            parts.append(run)
        else:
            parts[-1] += run
    if len(parts) < 2:
        yield rows
        return
    for part in map(frozenset, parts):
        for is_filled, group in groupby(rows, key=lambda row: any(row[1][at] != "" for at in part)):
            if is_filled:
                yield [
                    (n, [cell if at in part else "" for at, cell in enumerate(cells)]) for n, cells in group
                ]


def _are_apart(rows: list[_NumberedRow], left: list[int], right: list[int]) -> bool:
    """Return True for two columns or more on both sides that differ in length or are further apart."""
    ends = [
        max((n for n, cells in rows if any(cells[at] != "" for at in side)), default=0)
        for side in (left, right)
    ]
    return min(len(left), len(right)) > 1 and (right[0] - left[-1] > 2 or abs(ends[0] - ends[1]) > 1)


class _Areas(NamedTuple):
    """Tables of a sheet: rows without an empty row among them."""

    sheet: str
    left: int
    """Columns to the left of the cells."""
    groups: Mapping[int, list[Any]]
    """Rows by number with the values of cells that are merged over columns in each of these."""
    comments: dict[tuple[int, int], str]
    """By row and column of the sheet, from 0; each is removed when it is read."""
    hidden: set[int]
    """Hidden columns of the sheet, from 0."""
    headers: dict[tuple[int, ...], Sequence[str]]
    """Headers of the tables above, by their columns."""

    def read(self, rows: list[_NumberedRow]) -> list[Block]:
        """Return the blocks of one row or more, each with its number from 1."""
        blocks: list[Block] = []
        widest = max(_filled(cells) for _, cells in rows)
        while widest > 1 and _filled(rows[0][1]) == 1:
            number, cells = rows.pop(0)
            at = next(at for at, cell in enumerate(cells) if _shown(cell))
            blocks.append(self._paragraph(number, at, cells[at]))
        used = [at for at in range(len(rows[0][1])) if any(_shown(cells[at]) for _, cells in rows)]
        first, end, skipped = used[0], used[-1] + 1, 0
        columns = tuple(at for at in range(first, end) if self.left + at not in self.hidden)
        header = self.headers.get(columns, ())
        if names := _grouped_names(rows, self.groups.get(rows[0][0], []), columns):
            header, skipped = names, 2
        elif len(rows) > 1 and _is_header(rows[0][1][first:end]):
            header, skipped = [_shown(rows[0][1][at]) for at in columns], 1
        for other in [one for one in self.headers if one != columns and {*one} & {*columns}]:
            del self.headers[other]
        self.headers[columns] = header
        for number, cells in rows[:skipped]:
            noted = [at for at in used if (number - 1, self.left + at) in self.comments]
            blocks += [self._paragraph(number, at, cells[at]) for at in noted]
        table = [
            Row(
                [self._text(number, at, cells[at]) for at in columns],
                {"sheet": self.sheet, "cells": [self.left + first + 1, number, self.left + end, number]},
            )
            for number, cells in rows[skipped:]
        ]
        return [*blocks, Block(BlockKind.TABLE, header=header, rows=table)]

    def other_comments(self) -> Iterator[Block]:
        """Yield the comments of cells outside of the tables."""
        for (row, column), text in sorted(self.comments.items()):
            cells = [column + 1, row + 1] * 2
            yield paragraph(f"Comment on {cell_range(cells)}: {text}", {"sheet": self.sheet, "cells": cells})

    def _text(self, number: int, at: int, cell: Any) -> str:
        comment = self.comments.pop((number - 1, self.left + at), None)
        return f"{_shown(cell)} (comment: {comment})".lstrip() if comment else _shown(cell)

    def _paragraph(self, number: int, at: int, cell: Any) -> Block:
        place = [self.left + at + 1, number] * 2
        return paragraph(self._text(number, at, cell), {"sheet": self.sheet, "cells": place})


def _grouped_names(rows: list[_NumberedRow], above: list[Any], columns: Sequence[int]) -> list[str]:
    """Return names of columns, each after its merged cell above; none if row 2 is not text above numbers."""
    if not above or all(isinstance(cells[at], str) for _, cells in rows[2:] for at in columns):
        return []
    pairs = ((_shown(above[at]), rows[1][1][at]) for at in columns)
    names = [
        " ".join(dict.fromkeys((group, name))).strip() if isinstance(name, str) else name
        for group, name in pairs
    ]
    return names if _is_header(names) else []


def _is_header(cells: Sequence[Any]) -> bool:
    names = [" ".join(cell.split()) if isinstance(cell, str) else None for cell in cells if cell != ""]
    return len(names) > 1 and None not in names and len(set(names)) == len(names)


def _filled(cells: Sequence[Any]) -> int:
    return sum(1 for cell in cells if _shown(cell))


def _shown(cell: Any) -> str:
    """Return a cell's value as text: numbers as formatted, dates in ISO 8601, durations in hours."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, FormattedNumber):
        return cell.shown
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(round(cell, 10))
    if isinstance(cell, datetime.datetime):
        return cell.date().isoformat() if cell.time() == datetime.time() else cell.isoformat(" ", "minutes")
    if isinstance(cell, datetime.timedelta):
        minutes, seconds = divmod(abs(round(cell.total_seconds())), 60)
        return f"{'-' * (cell.days < 0)}{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return " ".join(str(cell).split())
