"""Slides, workbooks, Word and OpenDocument files with planted facts."""

import datetime
import io
import zipfile
from typing import Any
from xml.sax.saxutils import escape

import docx
import openpyxl
from pptx import Presentation
from pptx.util import Inches

from tests.support.formats.truth import Fact, Made, Writer


def slides(seed: int = 20) -> Made:
    """Return slides with titles, bullets, a table and notes; the last has no title."""
    writer, deck = Writer(seed), Presentation()
    text, headings, tables, facts = list[str](), list[str](), list[list[list[str]]](), list[Fact]()
    for number in range(1, 6):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        heading = writer.heading(number)
        slide.shapes.title.text = heading
        bullets = [writer.sentence(), writer.sentence()]
        spoken, fact = writer.fact({"slide": number})
        shown, other = writer.fact({"slide": number})
        slide.placeholders[1].text_frame.text = "\n".join([*bullets, shown])
        slide.notes_slide.notes_text_frame.text = spoken
        text += [*bullets, shown]
        headings.append(heading)
        facts += [fact, other]
        if number % 2:
            table = writer.table(5)
            shape = slide.shapes.add_table(6, 4, Inches(1), Inches(4), Inches(6), Inches(2))
            for row, cells in enumerate(table):
                for column, cell in enumerate(cells):
                    shape.table.cell(row, column).text = cell
            tables.append(table)
            facts.append(writer.table_fact(table, 2, {"slide": number}))
        text.append(f"Notes: {spoken}")
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    box = slide.shapes.add_textbox(Inches(1), Inches(1), Inches(4), Inches(1))
    sentence, fact = writer.fact({"slide": 6})
    box.text_frame.text = sentence
    out = io.BytesIO()
    deck.save(out)
    return Made(
        "deck.pptx", out.getvalue(), [*text, sentence], [*headings, "Slide 6"], tables, (), [*facts, fact]
    )


def _value(cell: str) -> int | str:
    return int(cell) if cell.isdecimal() else cell


def workbook(seed: int = 21) -> Made:
    """Return a workbook of three sheets: a long table, two tables below each other, and a hidden sheet."""
    writer, book = Writer(seed), openpyxl.Workbook()
    sales = book.active
    sales.title = "Sales"
    long = writer.table(300, 5)
    for cells in long:
        sales.append([*map(_value, cells)])
    second = book.create_sheet("Two tables")
    upper, lower = writer.table(5), writer.table(7)
    second["B2"] = "Visits of the first half"
    for top, table in ((3, upper), (12, lower)):
        for row, cells in enumerate(table, start=top):
            for column, cell in enumerate(cells):
                second.cell(row, 2 + column, _value(cell))
    hidden = book.create_sheet("Secret")
    hidden.append(["Nothing to see"])
    hidden.sheet_state = "hidden"
    out = io.BytesIO()
    book.save(out)
    facts = [
        writer.table_fact(long, 10, {"sheet": "Sales"}),
        writer.table_fact(long, 200, {"sheet": "Sales"}),
        writer.table_fact(upper, 3, {"sheet": "Two tables"}),
        writer.table_fact(lower, 6, {"sheet": "Two tables"}),
    ]
    headings = ["Sales", "Two tables"]
    return Made(
        "book.xlsx",
        out.getvalue(),
        ["Visits of the first half"],
        headings,
        [long, upper, lower],
        ("Secret",),
        facts,
    )


def word(seed: int = 22) -> Made:
    """Return a Word document with headings, lists and tables."""
    writer, document = Writer(seed), docx.Document()
    text, headings, tables, facts = list[str](), list[str](), list[list[list[str]]](), list[Fact]()
    for number in range(1, 5):
        heading, table = writer.heading(number), writer.table(12)
        sentence, fact = writer.fact({"heading": heading})
        prose = [
            writer.paragraph(),
            f"{writer.sentence()} {sentence} {writer.sentence()}",
            writer.paragraph(),
        ]
        item = writer.sentence()
        document.add_heading(heading, 1)
        for one in prose:
            document.add_paragraph(one)
        document.add_paragraph(item, style="List Bullet")
        shown = document.add_table(len(table), len(table[0]))
        for row, cells in enumerate(table):
            for column, cell in enumerate(cells):
                shown.cell(row, column).text = cell
        text += [*prose, item]
        headings.append(heading)
        tables.append(table)
        facts += [fact, writer.table_fact(table, 9, {"heading": heading})]
    out = io.BytesIO()
    document.save(out)
    return Made("manual.docx", out.getvalue(), text, headings, tables, (), facts)


_NAMESPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
    for name, space in (
        ("office", "office"),
        ("text", "text"),
        ("table", "table"),
        ("draw", "drawing"),
        ("presentation", "presentation"),
        ("svg", "svg-compatible"),
    )
)


def opendocument(kind: str, body: str, **members: str) -> bytes:
    """Return an OpenDocument file of a media type with a body."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", kind)
        archive.writestr(
            "content.xml",
            f"<office:document-content {_NAMESPACES}><office:body>{body}</office:body>"
            "</office:document-content>",
        )
        for name, text in members.items():
            archive.writestr(name, text)
    return out.getvalue()


def table_xml(table: list[list[str]]) -> str:
    """Return a table of OpenDocument without a marked header."""
    rows = "".join(
        "<table:table-row>"
        + "".join(f"<table:table-cell><text:p>{escape(cell)}</text:p></table:table-cell>" for cell in row)
        + "</table:table-row>"
        for row in table
    )
    return f"<table:table>{rows}</table:table>"


def odt(seed: int = 23) -> Made:
    """Return an OpenDocument text."""
    writer, parts = Writer(seed), list[str]()
    text, headings, tables, facts = list[str](), list[str](), list[Any](), list[Fact]()
    for number in range(1, 4):
        heading, table, prose = writer.heading(number), writer.table(6), writer.paragraph()
        sentence, fact = writer.fact({"heading": heading})
        parts += [
            f'<text:h text:outline-level="1">{heading}</text:h>',
            f"<text:p>{prose}</text:p><text:p>{sentence}</text:p>",
            table_xml(table),
        ]
        text += [prose, sentence]
        headings.append(heading)
        tables.append(table)
        facts += [fact, writer.table_fact(table, 4, {"heading": heading})]
    content = opendocument(
        "application/vnd.oasis.opendocument.text", f"<office:text>{''.join(parts)}</office:text>"
    )
    return Made("letter.odt", content, text, headings, tables, (), facts)


def commented() -> bytes:
    """Return an OpenDocument text with a comment and a text box in a cell merged over two rows."""
    note = "<office:annotation><text:p>Check</text:p></office:annotation>"
    box = "<draw:frame><draw:text-box><text:p>Box</text:p></draw:text-box></draw:frame>"
    cell = '<table:table-cell table:number-rows-spanned="2">'
    rows = f"<table:table-row>{cell}<text:p>A{note}{box}</text:p></table:table-cell></table:table-row>"
    rows += "<table:table-row><table:covered-table-cell/></table:table-row>"
    body = f"<office:text><table:table>{rows}</table:table></office:text>"
    return opendocument("application/vnd.oasis.opendocument.text", body)


def small_workbook() -> bytes:
    """Return a workbook with a formula without a stored value, a date, a number and an error."""
    book, out = openpyxl.Workbook(), io.BytesIO()
    rows = (["Day", "Amount", "Paid"], [datetime.date(2026, 3, 2), 12.5, True], ["#N/A", 3.0, "=1+2"])
    for row in rows:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def spreadsheet(body: str = "") -> bytes:
    """Return an OpenDocument spreadsheet; without a body, with a hidden row, a number and a comment."""
    note = "<office:annotation><text:p>Check</text:p></office:annotation>"
    value = f'<table:table-cell office:value-type="float" office:value="0.5">{note}<text:p>50 %</text:p>'
    rows = "".join(
        f'<table:table-row table:visibility="{shown}">{value}</table:table-cell></table:table-row>'
        for shown in ("visible", "collapse")
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = (
        '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0">'
        f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{kind}"/></manifest:manifest>'
    )
    table = body or f'<table:table table:name="Plan"><table:table-column/>{rows}</table:table>'
    whole = f"<office:spreadsheet>{table}</office:spreadsheet>"
    return opendocument(kind, whole, **{"META-INF/manifest.xml": manifest})


def slides_of_opendocument() -> bytes:
    """Return an OpenDocument presentation with a title, text, a table and notes."""
    box = "<draw:frame{}><draw:text-box>{}</draw:text-box></draw:frame>"
    title = box.format(' presentation:class="title"', "<text:p>Plan</text:p>")
    text = box.format("", "<text:list><text:list-item><text:p>First</text:p></text:list-item></text:list>")
    table = table_xml([["Name", "Age", "Town"], ["Ann", "5", "Ulm"]])
    notes = f"<presentation:notes>{box.format('', '<text:p>Say hello.</text:p>')}</presentation:notes>"
    page = f"<draw:page>{title}{text}<draw:frame>{table}</draw:frame>{notes}</draw:page>"
    body = f"<office:presentation>{page}<draw:page/></office:presentation>"
    return opendocument("application/vnd.oasis.opendocument.presentation", body)


def all_office() -> list[Made]:
    """Return all office documents."""
    return [slides(), workbook(), word(), odt()]
