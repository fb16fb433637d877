"""Readers of slides, OpenDocument, books, mail, XML and archives."""

import io
from typing import Any

import docx
import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import parse_xml
from reportlab.pdfgen.canvas import Canvas

from tests.support.documents import one, reason
from tests.support.formats import office, others, pdfs
from tests.unit.read_formats import chunks, zipped
from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract import extract, media, split
from vectorforge.ingestion.types import ExtractionLimits, SpanKind

NAMESPACES = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
}
BOX = "<w:txbxContent><w:p><w:r><w:t>Boxed.</w:t></w:r></w:p></w:txbxContent>"


def word_element(markup: str) -> Any:
    declared = " ".join(f'xmlns:{prefix}="{name}"' for prefix, name in NAMESPACES.items())
    return parse_xml(markup.replace(">", f" {declared}>", 1))


class TestSlides:
    def test_slides_have_titles_text_tables_and_notes(self) -> None:
        made = office.slides()
        document = one(made.content, "deck.pptx")
        assert [line for line in document.text.splitlines() if line.startswith("# ")] == [
            f"# {heading}" for heading in made.headings
        ]
        assert all(text in document.text for text in made.text)
        assert document.text.count("Notes: ") == 5
        assert document.title == made.headings[0]

    def test_chunks_of_slides_name_their_slides(self) -> None:
        for fact in office.slides().facts:
            [chunk] = [chunk for chunk in chunks(office.slides()) if fact.answer in chunk.text]
            assert fact.place["slide"] in [location["slide"] for location in chunk.locations]
        assert chunks(office.slides())[0].metadata == {"slide": 1}

    def test_opendocument_slides_are_read(self) -> None:
        document = one(office.slides_of_opendocument(), "plan.odp")
        assert document.text == "# Plan\n\n- First\n\nName: Ann; Age: 5; Town: Ulm\n\nSay hello.\n\n# Slide 2"
        assert [(span.location or {}).get("slide") for span in document.spans] == [1, 1, 1, 1, 2]


class TestDocuments:
    def test_opendocument_text_has_headings_and_tables(self) -> None:
        made = office.odt()
        document = one(made.content, "a.odt")
        assert all(f"# {heading}" in document.text for heading in made.headings)
        header, first, *_ = made.tables[0]
        assert "; ".join(map(": ".join, zip(header, first, strict=True))) in document.text

    def test_footnotes_follow_their_paragraph(self) -> None:
        note = "<text:note><text:note-body><text:p>Since 1961.</text:p></text:note-body></text:note>"
        body = f"<office:text><text:p>Open daily{note}.</text:p></office:text>"
        content = office.opendocument("application/vnd.oasis.opendocument.text", body)
        assert one(content, "a.odt").text == "Open daily.\n\nSince 1961."

    def test_book_has_chapters_title_and_author(self) -> None:
        made = others.book()
        document = one(made.content, "a.epub")
        assert (document.title, document.metadata) == ("Stations of the north", {"author": "Ann Berg"})
        assert "Contents of the book" not in document.text
        assert {chunk.locations[0]["heading"] for chunk in chunks(made)} == set(made.headings)

    def test_xml_records_and_text_are_paragraphs(self) -> None:
        xml = b"<r><title>Prices</title><i id='7'><n>Ann</n><v>3</v></i><p>Read <b>this</b> first.</p></r>"
        document = one(xml, "a.xml")
        assert document.text == "# Prices\n\nid: 7; n: Ann; v: 3\n\nRead this first."
        assert document.title == "Prices"

    def test_xml_attributes_are_read_of_every_element(self) -> None:
        xml = b"""<r xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a b">
            <order id="7" day="Monday"><i sku="A1">Lamp</i><i sku="B2" id="x">Oil</i></order>
            <part n="1" xml:id="p"><title>Routes</title><p to="Ulm" class="c">By
            <b>train</b></p><p>Slow.</p></part></r>"""
        assert one(xml, "a.xml").text.split("\n\n") == [
            "id: 7; day: Monday",
            "Lamp (sku: A1)",
            "Oil (sku: B2)",
            "## Routes",
            "n: 1",
            "By train (to: Ulm)",
            "Slow.",
        ]

    def test_xml_entities_are_not_expanded(self) -> None:
        bomb = b"<!DOCTYPE r [<!ENTITY a 'lol'><!ENTITY b '&a;&a;&a;'>]><r><x>start &b;</x></r>"
        assert "lol" not in one(bomb, "a.xml").text

    def test_xml_entities_between_elements_are_no_elements(self) -> None:
        declared = "<!DOCTYPE r [<!ENTITY x SYSTEM 'file:///etc/hostname'>]>"
        assert one(f"{declared}<r>&x;</r>".encode(), "a.xml").text == "&x;"
        assert one(f"{declared}<r><x>1</x>&x;<y>2</y></r>".encode(), "a.xml").text == "x: 1; y: 2"

    @pytest.mark.parametrize(
        "name", ["a.pptx", "a.xlsx", "a.odt", "a.odp", "a.epub", "a.msg", "a.xml", "a.zip"]
    )
    def test_damaged_file_is_rejected(self, name: str) -> None:
        assert reason(b"PK\x03\x04" + bytes(40), name) in ("unreadable", "undecodable")


class TestPages:
    def test_empty_elements_of_xhtml_do_not_hide_the_text_after_them(self) -> None:
        page = b"""<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>
            <body><p>One <a id="x"/>two.</p><script src="x"/><p>Three.</p></body></html>"""
        assert one(page, "a.xhtml").text == "One two.\n\nThree."

    def test_form_with_most_of_the_text_is_read(self) -> None:
        page = (
            b"<html><body><p>Menu</p><form><h1>Prices</h1><p>Oil costs three euros.</p></form></body></html>"
        )
        assert one(page, "a.html").text == "Menu\n\n# Prices\n\nOil costs three euros."

    def test_chapter_of_a_book_has_its_header_and_notes(self) -> None:
        names = {
            "META-INF/container.xml": b'<c><rootfile full-path="c.opf"/></c>',
            "c.opf": b'<p><item id="a" href="a.xhtml"/><itemref idref="a"/></p>',
            "a.xhtml": b"<body><header><h1>One</h1></header><p>Text.</p><aside>A note.</aside></body>",
        }
        assert one(zipped(names), "a.epub").text == "# One\n\nText.\n\nA note."


class TestWordDocuments:
    def test_text_in_controls_insertions_formulas_and_boxes_is_read_once(self) -> None:
        document, out = docx.Document(), io.BytesIO()
        first = document.add_paragraph("Run.")
        table = document.add_table(1, 1).cell(0, 0).add_table(1, 1)
        table.cell(0, 0).text = "Nested."
        for markup in (
            "<w:ins><w:r><w:t> Inserted.</w:t></w:r></w:ins>",
            "<w:moveFrom><w:r><w:t> Moved away.</w:t></w:r></w:moveFrom>",
            "<w:sdt><w:sdtContent><w:r><w:t> Control.</w:t></w:r></w:sdtContent></w:sdt>",
            "<m:oMath><m:r><m:t> a=b</m:t></m:r></m:oMath>",
            (
                f"<w:r><mc:AlternateContent><mc:Choice>{BOX}</mc:Choice><mc:Fallback>{BOX}</mc:Fallback>"
                "</mc:AlternateContent></w:r>"
            ),
        ):
            first._p.append(word_element(markup))
        contents = '<w:p><w:pPr><w:pStyle w:val="TOC1"/></w:pPr><w:r><w:t>Run. 1</w:t></w:r></w:p>'
        document.styles.add_style("TOC 1", WD_STYLE_TYPE.PARAGRAPH)
        control = "<w:p><w:r><w:t>In a control.</w:t></w:r></w:p>"
        document.element.body.insert(
            0, word_element(f"<w:sdt><w:sdtContent>{contents}{control}</w:sdtContent></w:sdt>")
        )
        document.save(out)
        assert one(out.getvalue(), "a.docx").text == (
            "In a control.\n\nRun. Inserted. Control. a=b\n\nBoxed.\n\nNested."
        )


class TestArchives:
    def test_files_of_an_archive_are_documents(self) -> None:
        content = zipped({"a/x.md": b"# X", "b.jsonl": b'{"id": 1, "text": "r"}', ".hidden": b"x"})
        parts = split(content, source="all.zip")
        assert [(part.source, part.parent_source) for part in parts] == [
            ("all.zip#a/x.md", "all.zip"),
            ("all.zip#b.jsonl#1", "all.zip"),
        ]
        assert [document.text for document in extract(content, source="all.zip")] == ["# X", "r"]

    def test_archive_with_unreadable_files_warns_with_their_names(self) -> None:
        content = zipped({"p.png": b"x", "in.zip": b"x", "a.md": b"A", "b.md": b"B", "old.doc": b"x"})
        first, second = extract(content, source="all.zip")
        assert first.warnings == ("Files of the archive are not read: p.png, in.zip, old.doc.",)
        assert second.warnings == ()

    def test_archive_without_readable_files_is_rejected_with_bounded_names(self) -> None:
        with pytest.raises(ExtractionError, match=r"empty\. .* 0\.doc, .*, 9\.doc and 2 more\.$"):
            extract(zipped({f"{n}.doc": b"x" for n in range(12)}), source="all.zip")

    def test_archive_bomb_is_rejected(self) -> None:
        assert reason(zipped({"a.txt": bytes(201 * 1024 * 1024)}), "a.zip") == "too_large"
        assert reason(zipped({f"{n}.txt": b"x" for n in range(1_001)}), "a.zip") == "too_large"

    def test_archive_with_large_file_is_rejected_by_name(self) -> None:
        limits = ExtractionLimits(max_bytes=9_999)
        with pytest.raises(ExtractionError, match="big in the archive"):
            split(zipped({"big": bytes(10_000)}), source="a.zip", limits=limits)

    @pytest.mark.parametrize("name", ["bomb.pptx", "bomb.xlsx", "bomb.odt", "bomb.epub"])
    def test_zip_bomb_in_each_format_is_rejected(self, name: str) -> None:
        assert reason(zipped({"content.xml": bytes(201 * 1024 * 1024)}), name) == "too_large"

    def test_type_of_an_archive_is_detected_without_its_name(self) -> None:
        for made in (office.slides(), office.workbook(), office.odt(), others.book()):
            expected = media.EXTENSIONS["." + made.source.rpartition(".")[2]]
            assert media.detect(made.content, "download", None) == expected
        assert media.detect(zipped({"a.txt": b"x"}), "download", None) == media.ZIP


def test_pdf_columns_are_read_one_after_the_other() -> None:
    [made] = [made for made in pdfs.all_pdfs() if made.source == "columns.pdf"]
    text = " ".join(one(made.content, "a.pdf").text.split())
    places = [text.find(paragraph[:60]) for paragraph in made.text]
    assert -1 not in places
    assert places == sorted(places)
    assert not any(head in text for head in made.absent)


def test_pdf_table_continues_over_pages_with_its_header() -> None:
    made = pdfs.long_table(6)
    found = chunks(made)
    assert all("Station: " in chunk.text and "Visits: " in chunk.text for chunk in found)
    for fact in made.facts:
        [chunk] = [chunk for chunk in found if f"Visits: {fact.answer};" in chunk.text]
        assert fact.place["page"] in [location["page"] for location in chunk.locations]


def test_pdf_hyphens_at_line_ends_are_joined_and_rectangles_are_on_the_page() -> None:
    made = pdfs.hyphenated(8)
    document = one(made.content, "a.pdf")
    assert made.text[0] in document.text
    rects = [rect for chunk in chunks(made) for place in chunk.locations for rect in place["rects"]]
    assert rects
    assert all(0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1 for x0, y0, x1, y1 in rects)
    assert [rect[1] for rect in rects] == sorted(rect[1] for rect in rects)


def test_pdf_headings_are_those_of_its_outline() -> None:
    out = io.BytesIO()
    canvas = Canvas(out)
    for number, (title, level) in enumerate((("Part A", 0), ("2.1 Orders", 1), ("Returns", 1))):
        canvas.bookmarkPage(title)
        canvas.addOutlineEntry(title.removeprefix("2.1 "), title, level)
        canvas.drawString(72, 700, title)  # in the font of the text
        canvas.drawString(72, 640, f"Paragraph {number} of the same size.")
        canvas.setFont("Helvetica", 18)
        canvas.drawString(72, 580, f"Large {number}")
        canvas.showPage()
    canvas.save()
    document = one(out.getvalue(), "a.pdf")
    found = [document.text[span.start : span.end] for span in document.spans if span.kind == SpanKind.HEADING]
    assert found == ["# Part A", "## Large 0", "## 2.1 Orders", "### Large 1", "## Returns", "### Large 2"]


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("angle", [90, -90])
def test_sideways_text_of_pdf_is_read_in_lines(angle: int, rotation: int) -> None:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(600, 800))
    canvas.setPageRotation(rotation)
    canvas.translate(300, 400)
    canvas.rotate(angle + rotation)
    for number, line in enumerate(("Wide tables stand", "sideways on a page.")):
        canvas.drawString(-350, 200 - 14 * number, line)
    for row, cells in enumerate((("City", "Cars", "Year"), ("Ulm", "12", "2024"), ("Bonn", "34", "2025"))):
        for column, cell in enumerate(cells):
            canvas.rect(-350 + 100 * column, 80 - 20 * row, 100, 20)
            canvas.drawString(-346 + 100 * column, 85 - 20 * row, cell)
    canvas.save()
    document = one(out.getvalue(), "a.pdf")
    assert document.text.split("\n\n") == [
        "Wide tables stand sideways on a page.",
        "City: Ulm; Cars: 12; Year: 2024",
        "City: Bonn; Cars: 34; Year: 2025",
    ]
    [x0, y0, x1, y1] = (document.spans[0].location or {})["rect"]
    assert y1 - y0 > 5 * (x1 - x0)
