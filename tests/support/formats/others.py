"""Books, mail, pages, notebooks, tables, archives with planted facts."""

import io
import json
import zipfile
from email.message import EmailMessage

from tests.support.formats.office import workbook
from tests.support.formats.pdfs import hyphenated
from tests.support.formats.truth import Fact, Made, Writer

_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)


def book(seed: int = 30) -> Made:
    """Return an EPUB of four chapters."""
    writer, chapters = Writer(seed), list[str]()
    text, headings, facts = list[str](), list[str](), list[Fact]()
    for number in range(1, 5):
        heading, prose = writer.heading(number), [writer.paragraph() for _ in range(3)]
        sentence, fact = writer.fact({"heading": heading})
        prose.insert(2, sentence)
        chapters.append(
            f"<html><body><h1>{heading}</h1>{''.join(f'<p>{one}</p>' for one in prose)}</body></html>"
        )
        text += prose
        headings.append(heading)
        facts.append(fact)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr("META-INF/container.xml", _CONTAINER)
        items = "".join(f'<item id="c{n}" href="c{n}.xhtml"/>' for n in range(len(chapters)))
        order = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
        archive.writestr(
            "OEBPS/book.opf",
            '<package xmlns="http://www.idpf.org/2007/opf">'
            '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
            "<dc:title>Stations of the north</dc:title><dc:creator>Ann Berg</dc:creator></metadata>"
            f'<manifest>{items}<item id="n" href="nav.xhtml" properties="nav"/></manifest>'
            f"<spine>{order}</spine></package>",
        )
        archive.writestr("OEBPS/nav.xhtml", "<html><body><p>Contents of the book</p></body></html>")
        for n, chapter in enumerate(chapters):
            archive.writestr(f"OEBPS/c{n}.xhtml", chapter)
    return Made("book.epub", out.getvalue(), text, headings, (), ("Contents of the book",), facts)


def mail(seed: int = 31) -> Made:
    """Return a mail with a PDF and a workbook attached."""
    writer, message = Writer(seed), EmailMessage()
    sentence, fact = writer.fact({})
    pdf, sheets = hyphenated(32), workbook(33)
    message["Subject"], message["From"], message["To"] = (
        "Inspection",
        "Ann <ann@example.com>",
        "bo@example.com",
    )
    message["Date"] = "Mon, 02 Mar 2026 10:00:00 +0100"
    message.set_content(f"{writer.paragraph(2)}\n\n{sentence}\n")
    message.add_attachment(pdf.content, maintype="application", subtype="pdf", filename="notice.pdf")
    message.add_attachment(
        sheets.content, maintype="application", subtype="octet-stream", filename="book.xlsx"
    )
    facts = [
        fact,
        *(Fact(one.question, one.answer, {}) for one in (*pdf.facts, *sheets.facts[2:])),
    ]
    return Made(
        "inspection.eml",
        message.as_bytes(),
        (),
        ["Attachment: notice.pdf", "Attachment: book.xlsx"],
        sheets.tables,
        (),
        facts,
    )


def page(seed: int = 34) -> Made:
    """Return an HTML page with a table."""
    writer = Writer(seed)
    heading, table, prose = writer.heading(1), writer.table(40), writer.paragraph()
    sentence, fact = writer.fact({"heading": heading})
    head = "".join(f"<th>{cell}</th>" for cell in table[0])
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in table[1:])
    html = (
        f"<html><body><nav>Menu of the site</nav><main><h1>{heading}</h1><p>{prose}</p><p>{sentence}</p>"
        f"<table><tr>{head}</tr>{rows}</table></main></body></html>"
    )
    facts = [fact, writer.table_fact(table, 33, {"heading": heading})]
    return Made("page.html", html.encode(), [prose, sentence], [heading], [table], ("Menu",), facts)


def csv(seed: int = 35) -> Made:
    """Return a CSV table."""
    writer = Writer(seed)
    table = writer.table(200, 6)
    content = "\n".join(",".join(row) for row in table).encode()
    return Made("stations.csv", content, (), (), [table], (), [writer.table_fact(table, 150, {})])


def notebook(seed: int = 36) -> Made:
    """Return a notebook."""
    writer = Writer(seed)
    sentence, fact = writer.fact({"heading": "Analysis"})
    cells = [
        {"cell_type": "markdown", "source": ["# Analysis\n", "\n", sentence]},
        {"cell_type": "code", "source": "total = 1 + 2", "outputs": [{"text": "OUT"}]},
    ]
    content = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
    return Made("analysis.ipynb", content, (), (), (), ("OUT",), [fact])


def all_others() -> list[Made]:
    """Return all other documents."""
    return [book(), mail(), page(), csv(), notebook()]
