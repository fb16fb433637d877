"""Hidden rows and columns of workbooks, and cells of OpenDocument sheets as shown."""

import io
import zipfile
from typing import Any

import openpyxl
from openpyxl.worksheet.filters import FilterColumn, Filters
from openpyxl.worksheet.table import AutoFilter, Table

from tests.support.documents import one
from tests.support.formats.office import spreadsheet
from tests.unit.read_formats import zipped


def saved(book: Any) -> bytes:
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def filtered() -> AutoFilter:
    return AutoFilter(ref="A1:B9", filterColumn=[FilterColumn(colId=0, filters=Filters(filter=["Ann"]))])


def people() -> Any:
    book = openpyxl.Workbook()
    for row in (["Name", "Key", "Visits"], ["Ann", 81, 3], ["Bo", 82, 4], ["Cy", 83, 5]):
        book.active.append(row)
    return book


def test_hidden_rows_and_columns_are_left_out_with_a_warning() -> None:
    from openpyxl.comments import Comment

    book = people()
    book.active.row_dimensions[3].hidden = True
    book.active.column_dimensions["B"].hidden = True
    for cell in ("B2", "A3"):
        book.active[cell].comment = Comment("Not seen", "Ann")
    document = one(saved(book), "a.xlsx")
    assert document.text == "# Sheet\n\nName: Ann; Visits: 3\n\nName: Cy; Visits: 5"
    assert document.warnings == ("Hidden rows and columns were left out: 2.",)


def test_value_merged_over_a_hidden_column_is_read() -> None:
    book = people()
    book.active.insert_rows(1)
    book.active["A1"] = "Visitors"
    book.active.merge_cells("A1:C1")
    book.active.column_dimensions["A"].hidden = True
    assert one(saved(book), "a.xlsx").text.startswith("# Sheet\n\nVisitors\n\nKey: 81; Visits: 3")


def test_rows_of_a_filter_and_of_a_closed_group_are_read() -> None:
    book, text = people(), "Name: Bo; Key: 82; Visits: 4"
    book.active.row_dimensions[3].hidden = True
    assert text not in one(saved(book), "a.xlsx").text
    book.active.auto_filter = filtered()
    assert text in one(saved(book), "a.xlsx").text
    book.active.auto_filter = AutoFilter()
    table = Table(displayName="People", ref="A1:C4")
    table.autoFilter = filtered()
    book.active.add_table(table)
    assert text in one(saved(book), "a.xlsx").text
    book = people()
    book.active.row_dimensions.group(3, 4, hidden=True)
    book.active.column_dimensions.group("B", "C", hidden=True)
    assert text in one(saved(book), "a.xlsx").text


def ods(table: str) -> bytes:
    return spreadsheet(f'<table:table table:name="Plan">{table}</table:table>')


def cell(text: str, kind: str = "string", value: str = "", more: str = "") -> str:
    name = {"date": "date-value", "time": "time-value"}.get(kind, "value")
    attributes = f'office:value-type="{kind}"' + (f' office:{name}="{value}"' if value else "")
    return f"<table:table-cell {attributes}>{more}<text:p>{text}</text:p></table:table-cell>"


def test_numbers_of_opendocument_are_read_as_shown_with_comments() -> None:
    note = "<office:annotation><dc:creator>Ann</dc:creator><text:p>Check</text:p></office:annotation>"
    gap = '<table:table-row table:number-rows-repeated="2"><table:table-cell/></table:table-row>'
    names = "".join(map(cell, ("Name", "Share", "Price", "Day", "Time")))
    values = [
        cell("Ann", more=note),
        cell("12,5 %", "percentage", "0.125"),
        cell("1.234,50 €", "currency", "1234.5"),
        cell("02.03.26", "date", "2026-03-02"),
        cell("30:15", "time", "PT30H15M00S"),
    ]
    empty = "<table:table-cell/>"
    rows = (
        f"<table:table-row>{empty}{names}</table:table-row>"
        f'<table:table-row table:number-rows-repeated="2">{empty}{"".join(values)}</table:table-row>'
    )
    lone = f"<table:table-row>{empty}{empty}{empty}{note.join(['<table:table-cell>', '</table:table-cell>'])}"
    content = ods(f"{gap}{rows}{gap}{lone}</table:table-row>")
    line = "Share: 12,5 %; Price: 1.234,50 €; Day: 2026-03-02; Time: 30:15"
    assert one(content, "a.ods").text.split("\n\n") == [
        "# Plan",
        f"Name: Ann (comment: Check); {line}",
        f"Name: Ann; {line}",
        "Comment on D8: Check",
    ]


def test_hidden_rows_and_columns_of_opendocument_are_left_out() -> None:
    def row(name: str, attributes: str = "") -> str:
        return f"<table:table-row {attributes}>{cell(name)}{cell('81')}{cell('red')}</table:table-row>"

    columns = '<table:table-column/><table:table-column table:visibility="collapse"/>'
    hidden = 'table:visibility="collapse"'
    rows = [
        row("Name"),
        row("Bo", hidden),
        row("Cy", 'table:visibility="filter"'),
        f'<table:table-row-group table:display="false">{row("Di", hidden)}</table:table-row-group>',
    ]
    document = one(ods(columns + "".join(rows)), "a.ods")
    assert document.text.split("\n\n") == ["# Plan", "Name: Cy; red: red", "Name: Di; red: red"]
    assert document.warnings == ("Hidden rows and columns were left out: 2.",)


def test_hidden_sheet_of_opendocument_is_left_out() -> None:
    style = (
        '<office:automatic-styles><style:style style:name="h" style:family="table"><style:table-properties '
        'table:display="false"/></style:style></office:automatic-styles>'
    )
    sheets = "".join(
        f'<table:table table:name="{name}" table:style-name="{style}"><table:table-row>{cell(name)}'
        "</table:table-row></table:table>"
        for name, style in (("One", "h"), ("Two", "v"))
    )
    with zipfile.ZipFile(io.BytesIO(spreadsheet(sheets))) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["content.xml"] = parts["content.xml"].replace(b"<office:body>", style.encode() + b"<office:body>")
    document = one(zipped(parts), "a.ods")
    assert (document.text, document.warnings) == ("# Two\n\nTwo", ("Hidden sheets were left out: 1.",))


def test_tables_side_by_side_are_read_one_after_the_other() -> None:
    book = openpyxl.Workbook()
    for row in (
        ["Item", "Price", None, "Zone", "Fee", "Days"],
        ["Door", 249, None, "North", 12, 2],
        ["Board", 20, None, None, None, None],
        ["Hinge", 2, None, None, None, None],
    ):
        book.active.append(row)
    document = one(saved(book), "a.xlsx")
    assert document.text.split("\n\n") == [
        "# Sheet",
        "Item: Door; Price: 249",
        "Item: Board; Price: 20",
        "Item: Hinge; Price: 2",
        "Zone: North; Fee: 12; Days: 2",
    ]
    assert document.spans[-1].location == {"sheet": "Sheet", "cells": [4, 2, 6, 2]}


def test_table_with_an_empty_column_within_is_one_table() -> None:
    book = openpyxl.Workbook()
    for row in (["Item", "Size", None, "Net", "Gross"], ["Door", 80, None, 2, 3], ["Sum", None, None, 2, 3]):
        book.active.append(row)
    assert one(saved(book), "a.xlsx").text.split("\n\n")[1:] == [
        "Item: Door; Size: 80; Net: 2; Gross: 3",
        "Item: Sum; Net: 2; Gross: 3",
    ]


def test_header_is_not_that_of_a_table_in_other_columns() -> None:
    book = openpyxl.Workbook()
    for row in (
        ["Item", "Price", "Size", None, None, "Zone", "Fee"],
        ["Door", 249, 80, None, None, "North", 12],
        [],
        ["Discount", 0.15],
        [],
        [None, None, None, None, None, "South", 14],
    ):
        book.active.append(row)
    assert one(saved(book), "a.xlsx").text.split("\n\n")[2:] == [
        "Zone: North; Fee: 12",
        "Discount | 0.15",
        "Zone: South; Fee: 14",
    ]
