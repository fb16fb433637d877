"""The reader of DOCX: notes, levels and numbers of lists, numbers of headings."""

import io
import zipfile
from typing import Any

import docx
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from pptx.chart.data import CategoryChartData
from pptx.chart.xmlwriter import ChartXmlWriter
from pptx.enum.chart import XL_CHART_TYPE

from tests.support.documents import one
from tests.unit.read_formats import zipped

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
NOTE = (
    f'<w:footnotes {W}><w:footnote w:id="2"><w:p><w:r><w:t>Not in May.</w:t></w:r></w:p>'
    "</w:footnote></w:footnotes>"
)
LEVEL = '<w:lvl w:ilvl="{}"><w:start w:val="{}"/><w:numFmt w:val="{}"/><w:lvlText w:val="{}"/></w:lvl>'


def saved(document: Any) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def numbered(paragraph: Any, number: int, level: int) -> None:
    properties = paragraph._p.get_or_add_pPr()
    markup = f'<w:numPr {W}><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
    properties.append(parse_xml(markup))


def test_endnotes_and_notes_in_tables_are_read() -> None:
    document = docx.Document()
    first = document.add_paragraph("Open daily.")
    first._p.append(parse_xml(f'<w:r {W}><w:endnoteReference w:id="2"/></w:r>'))
    cell = document.add_table(1, 1).cell(0, 0).paragraphs[0]
    cell.text = "Free"
    cell._p.append(parse_xml(f'<w:r {W}><w:footnoteReference w:id="2"/></w:r>'))
    document.add_paragraph("End.")
    with zipfile.ZipFile(io.BytesIO(saved(document))) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for kind, text in (("footnotes", NOTE), ("endnotes", NOTE.replace("footnote", "endnote"))):
        parts[f"word/{kind}.xml"] = text.replace("May", kind).encode()
        relation = f'<Relationship Id="{kind}" Type="{TYPES}/{kind}" Target="{kind}.xml"/></Relationships>'
        file = "word/_rels/document.xml.rels"
        parts[file] = parts[file].replace(b"</Relationships>", relation.encode())
        kinds = "application/vnd.openxmlformats-officedocument.wordprocessingml"
        override = f'<Override PartName="/word/{kind}.xml" ContentType="{kinds}.{kind}+xml"/></Types>'
        file = "[Content_Types].xml"
        parts[file] = parts[file].replace(b"</Types>", override.encode())
    assert one(zipped(parts), "a.docx").text.split("\n\n") == [
        "Open daily.",
        "Not in endnotes.",
        "Free",
        "Not in footnotes.",
        "End.",
    ]


def test_items_and_headings_have_the_levels_and_numbers_that_are_shown() -> None:
    document = docx.Document()
    levels = [(0, 1, "decimal", "%1."), (1, 1, "lowerLetter", "%2)"), (2, 1, "bullet", "*")]
    outline = [(0, 2, "upperRoman", "%1"), (1, 1, "decimal", "%1.%2")]
    numbering = document.part.numbering_part.element
    for number, made in ((90, levels), (91, outline)):
        markup = "".join(LEVEL.format(*level) for level in made)
        abstract = f'<w:abstractNum {W} w:abstractNumId="{number}">{markup}</w:abstractNum>'
        numbering.insert(0, parse_xml(abstract))
        numbering.append(
            parse_xml(f'<w:num {W} w:numId="{number}"><w:abstractNumId w:val="{number}"/></w:num>')
        )
    restart = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="1"/></w:lvlOverride>'
    numbering.append(parse_xml(f'<w:num {W} w:numId="92"><w:abstractNumId w:val="90"/>{restart}</w:num>'))
    style = document.styles["Heading 2"].element.get_or_add_pPr()
    style.append(parse_xml(f'<w:numPr {W}><w:ilvl w:val="1"/><w:numId w:val="91"/></w:numPr>'))
    numbered(document.add_heading("Scope", 1), 91, 0)
    document.add_heading("Where", 2)
    document.add_heading("When", 2)
    for text, number, level in (
        ("Ask", 90, 0),
        ("By mail", 90, 1),
        ("Briefly", 90, 2),
        ("Or in person", 90, 1),
        ("Book", 90, 0),
        ("Online", 90, 1),
        ("Again", 92, 0),
        ("Not numbered", 0, 0),
    ):
        numbered(document.add_paragraph(text), number, level)
    for style_name in ("List Number", "List Number", "List Bullet 2"):
        document.add_paragraph("Styled", style=style_name)
    assert one(saved(document), "a.docx").text.split("\n\n") == [
        "# II Scope",
        "## II.1 Where",
        "## II.2 When",
        "1. Ask\n  a) By mail\n    - Briefly\n  b) Or in person\n2. Book\n  a) Online\n1. Again",
        "Not numbered",
        "1. Styled\n2. Styled\n  - Styled",
    ]


def test_hidden_text_is_left_out() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Shown")
    paragraph.add_run(" hidden").font.hidden = True
    paragraph.add_run(" too").font.hidden = False
    assert one(saved(document), "a.docx").text == "Shown too"


def test_controls_around_rows_and_cells_are_read() -> None:
    document = docx.Document()
    table = document.add_table(2, 2)
    for cell, text in zip([*table.rows[0].cells, *table.rows[1].cells], "ABCD", strict=True):
        cell.text = text
    for element in (table.rows[0].cells[1]._tc, table.rows[1]._tr):
        control = parse_xml(f"<w:sdt {W}><w:sdtPr/><w:sdtContent/></w:sdt>")
        element.addprevious(control)
        control[1].append(element)
    assert one(saved(document), "a.docx").text == "A | B\n\nC | D"


def test_tabs_check_boxes_and_raised_digits_are_not_lost() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("Yes ")
    for markup in (
        '<w:sym w:font="Wingdings" w:char="F0FE"/>',
        "<w:t>, no </w:t>",
        '<w:sym w:font="Wingdings" w:char="F0A8"/>',
        '<w:ptab w:alignment="right"/>',
        '<w:sym w:font="Other" w:char="F041"/>',
    ):
        paragraph._p.append(parse_xml(f"<w:r {W}>{markup}</w:r>"))
    for text in ("10", "3", " m", "2"):
        run = paragraph.add_run(text)
        run.font.superscript = len(text) == 1
    assert one(saved(document), "a.docx").text == "Yes \u2612, no \u2610\t10^3 m2"


def test_comments_follow_their_paragraph_or_table() -> None:
    document = docx.Document()
    run = document.add_paragraph("The price is 100 euros.").runs[0]
    document.add_comment(run, "Yes,\nnet.", author="")
    document.add_comment(run, "Net?", author="Ann Lee")
    cell = document.add_table(1, 1).cell(0, 0).paragraphs[0]
    document.add_comment(cell.add_run("Free"), "Until May.", author="Bo")
    assert one(saved(document), "a.docx").text.split("\n\n") == [
        "The price is 100 euros.",
        "Comment by Ann Lee: Net?",
        "Comment: Yes, net.",
        "Free",
        "Comment by Bo: Until May.",
    ]


def related(document: Any, kind: str, root: str) -> str:
    part = Part(PackURI(f"/word/{kind}/one.xml"), "application/xml", root.encode(), document.part.package)
    return str(document.part.relate_to(part, f"{TYPES}/{kind}"))


def test_charts_and_diagrams_follow_their_paragraph() -> None:
    document, values = docx.Document(), CategoryChartData()  # type: ignore[no-untyped-call]
    values.categories = ["East", "West"]
    values.add_series("2025", (19, 20))  # type: ignore[no-untyped-call]
    markup = str(ChartXmlWriter(XL_CHART_TYPE.PIE, values).xml)  # type: ignore[no-untyped-call]
    chart = related(document, "chart", markup[markup.index("?>") + 2 :])
    points = "".join(
        f'<d:pt type="{kind}"><d:t><a:p xmlns:a="{DRAWING}/main"><a:r><a:t>{text}</a:t></a:r></a:p></d:t>'
        "</d:pt>"
        for kind, text in (("node", "Plan"), ("parTrans", "x"), ("node", "Build it"))
    )
    data = related(
        document, "diagramData", f'<d:dataModel xmlns:d="{DRAWING}/diagram">{points}</d:dataModel>'
    )
    paragraph = document.add_paragraph("Sales by region and steps:")
    for name, attribute in (("chart", f'r:id="{chart}"'), ("diagram", f'r:dm="{data}"')):
        tag = "relIds" if name == "diagram" else "chart"
        graphic = f'<x:{tag} xmlns:x="{DRAWING}/{name}" xmlns:r="{TYPES}" {attribute}/>'
        paragraph._p.append(parse_xml(f"<w:r {W}><w:drawing>{graphic}</w:drawing></w:r>"))
    assert one(saved(document), "a.docx").text.split("\n\n") == [
        "Sales by region and steps:",
        "Category: East; 2025: 19",
        "Category: West; 2025: 20",
        "- Plan\n- Build it",
    ]
