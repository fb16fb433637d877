"""The reader of DOCX: notes, levels and numbers of lists, numbers of headings."""

import io
import zipfile
from typing import Any

import docx
from docx.oxml import parse_xml

from tests.support.documents import one
from tests.unit.read_formats import zipped

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
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
