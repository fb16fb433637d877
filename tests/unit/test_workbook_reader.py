"""The reader of workbooks: sheets, tables, merged cells and formulas."""

import io
import re
import tracemalloc
import zipfile
from typing import Any

import pytest

from tests.support.documents import one, reason
from tests.support.formats import office
from tests.unit.read_formats import chunks, zipped
from vectorforge.ingestion.extract.readers.sheets import read_workbook


class TestWorkbooks:
    def test_sheets_are_tables_with_cell_ranges(self) -> None:
        made = office.workbook()
        document = one(made.content, "book.xlsx")
        assert "Nothing to see" not in document.text
        assert document.warnings == ("Hidden sheets were left out: 1.",)
        found = chunks(made)
        assert found[0].locations[0]["range"].startswith("A2:E")
        assert {chunk.metadata["sheet"] for chunk in found} == {"Sales", "Two tables"}
        assert all("Station: " in chunk.text for chunk in found)

    def test_values_are_shown_as_people_write_them(self) -> None:
        document = one(office.small_workbook(), "a.xlsx")
        assert "Day: 2026-03-02; Amount: 12.5; Paid: true" in document.text
        assert "Amount: 3" in document.text

    @pytest.mark.parametrize(
        ("value", "code", "text"),
        [
            (0.125, "0.0%", "12.5%"),
            (-1234.5, '"$"#,##0.00', "-$1,234.50"),
            (-1234.5, "#,##0.00\\ [$€-407]", "-1,234.50 €"),
            (-3.5, '_-* #,##0.00\\ "€"_-;-* #,##0.00\\ "€"_-;_-* "-"??\\ "€"_-;_-@_-', "-3.50 €"),
            (-5.25, "#,##0.00;[Red](#,##0.00)", "(5.25)"),
            (1234567, "#,##0", "1,234,567"),
            (1.005, "0.00", "1.01"),
            (-0.001, "0.0", "0.0"),
            (0.5, "#.0#", ".5"),
            (1234, "00000", "01234"),
            (12_500_000, '0.0,,"M"', "12.5M"),
            (5, '0 "kg"', "5 kg"),
            (5, '"yes";"no";"none"', "yes"),
            (5, ";;;", "5"),
            (12345, "0.00E+00", "12345"),
            (0.5, "0." + "0" * 99, "0.5"),
            (46000.5, "m/d/yy h:mm", "2025-12-09 12:00"),
            (0.75, "h:mm AM/PM", "18:00:00"),
            (1.25, "[h]:mm", "30:00:00"),
        ],
    )
    def test_number_is_shown_in_its_format(self, value: float, code: str, text: str) -> None:
        import openpyxl

        book, out = openpyxl.Workbook(), io.BytesIO()
        book.active["C4"], book.active["D4"] = "Value", value
        book.active["D4"].number_format = code
        book.save(out)
        assert one(out.getvalue(), "a.xlsx").text == f"# Sheet\n\nValue | {text}"

    def test_number_formats_of_cells_without_names_are_found_by_their_order(self) -> None:
        import openpyxl

        book, out = openpyxl.Workbook(), io.BytesIO()
        for row in (["Name", "Share"], ["Ann", 0.5]):
            book.active.append(row)
        book.active["B2"].number_format = "0%"
        book.save(out)
        with zipfile.ZipFile(out) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        [sheet] = [name for name in parts if name.startswith("xl/worksheets/")]
        parts[sheet] = re.sub(rb' r="[A-Z]*[0-9]+"', b"", parts[sheet])
        assert one(zipped(parts), "a.xlsx").text == "# Sheet\n\nName: Ann; Share: 50%"

    def test_comment_follows_the_value_of_its_cell(self) -> None:
        import openpyxl
        from openpyxl.comments import Comment

        book, out = openpyxl.Workbook(), io.BytesIO()
        for row in (["Plan"], ["Name", "Visits"], ["Ann", 3], ["Bo", None]):
            book.active.append([None, *row])
        for cell in ("B1", "C2", "C3", "C4", "Z90"):
            book.active[cell].comment = Comment(f"Note\n{cell}", "Ann")
        book.create_sheet("Empty")["A1"].comment = Comment("Alone", "Ann")
        book.save(out)
        assert one(out.getvalue(), "a.xlsx").text.split("\n\n") == [
            "# Sheet",
            "Plan (comment: Note B1)",
            "Visits (comment: Note C2)",
            "Name: Ann; Visits: 3 (comment: Note C3)",
            "Name: Bo; Visits: (comment: Note C4)",
            "Comment on Z90: Note Z90",
            "# Empty",
            "Comment on A1: Alone",
        ]

    def test_thread_of_comments_replaces_its_note_for_older_programs(self) -> None:
        import openpyxl
        from openpyxl.comments import Comment

        book, out = openpyxl.Workbook(), io.BytesIO()
        book.active["A1"] = "Ann"
        book.active["A1"].comment = Comment("[Threaded comment] Upgrade!", "Ann")
        book.save(out)
        with zipfile.ZipFile(out) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        file = "xl/worksheets/_rels/sheet1.xml.rels"
        thread = b'<Relationship Id="t" Type="x/threadedComment" Target="../threadedComments/t.xml"/>'
        parts[file] = parts[file].replace(b"</Relationships>", thread + b"</Relationships>")
        parts["xl/threadedComments/t.xml"] = b"""<ThreadedComments
            xmlns="http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"><threadedComment
            ref="A1" id="{1}"><text>Who?</text></threadedComment><threadedComment ref="A1" parentId="{1}">
            <text>The boss.</text></threadedComment></ThreadedComments>"""
        assert one(zipped(parts), "a.xlsx").text == "# Sheet\n\nAnn (comment: Who? / The boss.)"

    def test_formulas_without_stored_values_are_counted(self) -> None:
        import openpyxl

        book, out = openpyxl.Workbook(), io.BytesIO()
        for row in (["Name", "Visits"], ["Ann", 3], ["Sum", "=SUM(B2:B2)"], ["Mean", "=AVERAGE(B2:B2)"]):
            book.active.append(row)
        book.save(out)
        document = one(out.getvalue(), "a.xlsx")
        assert "Name: Ann; Visits: 3" in document.text
        assert document.warnings == (
            "Formulas without a stored value were left out: 2. Save the workbook in a spreadsheet program.",
        )
        stored = out.getvalue()
        with zipfile.ZipFile(io.BytesIO(stored)) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        [sheet] = [name for name in parts if name.startswith("xl/worksheets/")]
        parts[sheet] = parts[sheet].replace(b"<v></v>", b"<v>3</v>").replace(b"<v />", b"<v>3</v>")
        document = one(zipped(parts), "a.xlsx")
        assert "Name: Mean; Visits: 3" in document.text
        assert document.warnings == ()

    def test_formulas_of_large_sheets_are_counted_in_little_memory(self) -> None:
        import openpyxl

        book, out = openpyxl.Workbook(), io.BytesIO()
        book.active.append(["Name"])
        book.save(out)
        with zipfile.ZipFile(out) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        [sheet] = [name for name in parts if name.startswith("xl/worksheets/")]
        cells = b"".join(b'<row><c r="B%d"><f>SUM(A1:A2)</f><v></v></c></row>' % n for n in range(2, 30_000))
        gap = b" " * 30_000_000
        parts[sheet] = parts[sheet].replace(b"</sheetData>", cells + gap + b"</sheetData>")
        content = zipped(parts)
        del cells, gap, parts
        tracemalloc.start()
        reading = read_workbook(content)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert reading.warnings[0].startswith("Formulas without a stored value were left out: 29,998.")
        assert peak < 10_000_000

    def test_table_without_header_uses_the_header_above(self) -> None:
        import openpyxl

        book, out = openpyxl.Workbook(), io.BytesIO()
        for row in (["Name", "Visits"], ["Ann", 3], [], ["Bo", 4], []):
            book.active.append(row)
        book.save(out)
        assert one(out.getvalue(), "a.xlsx").text == "# Sheet\n\nName: Ann; Visits: 3\n\nName: Bo; Visits: 4"

    def test_merged_cell_stands_in_each_of_its_rows(self) -> None:
        import openpyxl

        book, out = openpyxl.Workbook(), io.BytesIO()
        for row in (["Sales"], ["Region", "Manager"], ["North", "Kim"], [None, "Lee"], [], ["South", "Ngo"]):
            book.active.append([None, *row])
        for cells in ("B1:C1", "B3:B5", "B7:C90", "X1:X9"):
            book.active.merge_cells(cells)
        book.save(out)
        assert one(out.getvalue(), "a.xlsx").text.split("\n\n") == [
            "# Sheet",
            "Sales",
            "Region: North; Manager: Kim",
            "Region: North; Manager: Lee",
            "Region: South; Manager: Ngo",
        ]

    @pytest.mark.parametrize(
        ("rows", "text"),
        [
            (
                [["Item", "Prices", None], ["No.", "Net", "Gross"], ["P1", 10, 11.9]],
                "Item No.: P1; Prices Net: 10; Prices Gross: 11.9",
            ),
            (
                [["Region", 2025, None], [None, "Plan", "Actual"], ["North", 5, 6]],
                "Region: North; 2025 Plan: 5; 2025 Actual: 6",
            ),
            (
                [["Name", "Contact", None], ["Ann", "a@x.org", "Graz"], ["Bo", "b@x.org", "Linz"]],
                "Name: Ann; Contact: a@x.org; column 3: Graz\n\nName: Bo; Contact: b@x.org; column 3: Linz",
            ),
        ],
    )
    def test_cell_merged_over_columns_groups_the_names_below(self, rows: list[list[Any]], text: str) -> None:
        import openpyxl

        book, out = openpyxl.Workbook(), io.BytesIO()
        for row in rows:
            book.active.append([None, *row])
        book.active.merge_cells("C1:D1")
        book.save(out)
        assert one(out.getvalue(), "a.xlsx").text == f"# Sheet\n\n{text}"

    def test_workbook_with_password_is_rejected(self) -> None:
        container = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512) + "EncryptedPackage".encode("utf-16-le")
        assert reason(container, "a.xlsx") == "encrypted"
