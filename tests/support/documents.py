"""Documents of several formats, and shortcuts to read them."""

import io

import docx
import pytest

from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract import extract
from vectorforge.ingestion.types import ExtractedDocument

PAGE = """<!doctype html><html><head><title> My
page </title><style>x{}</style></head><body><nav>menu</nav><header><h1>Site</h1></header>
<main><header><h1>Install &amp; run</h1></header><p>Hello <b>bold</b> <a href=x>link</a>
text<br>next</p><h2>Steps</h2><ul><li>one</li><li>two</li></ul><pre><code>a = 1
  b = ```2</code></pre><table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td>2</td></tr></table>
<form>name</form><aside>ad</aside><script>alert(1)</script><div>outer<div>inner</div></div></main>
<footer>foot</footer></body></html>"""
PAGE_TEXT = """# Install & run

Hello bold link text
next

## Steps

- one
- two

````
a = 1
  b = ```2
````

A: 1; B: 2

outer
inner"""


def one(content: bytes, source: str = "file", media_type: str | None = None) -> ExtractedDocument:
    [document] = extract(content, source=source, media_type=media_type)
    return document


def reason(content: bytes, source: str = "file", media_type: str | None = None) -> str:
    with pytest.raises(ExtractionError) as failure:
        extract(content, source=source, media_type=media_type)
    return failure.value.reason


def pdf(*pages: str, title: str = "Report") -> bytes:
    """A PDF with a line of text on each page; an empty string makes a page without text."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else ""
        contents = f"/Contents {5 + 2 * index} 0 R /Resources << /Font << /F1 3 0 R >> >>"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {contents} >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    objects.append(f"<< /Title ({title}) >>")
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(out.tell())
        out.write(f"{number} 0 obj\n{body}\nendobj\n".encode("latin-1"))
    start = out.tell()
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode())
    for offset in offsets:
        out.write(f"{offset:010} 00000 n \n".encode())
    out.write(
        f"trailer << /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>\n"
        f"startxref\n{start}\n%%EOF\n".encode()
    )
    return out.getvalue()


def word_document() -> bytes:
    document = docx.Document()
    document.core_properties.title = "Manual"
    document.add_heading("Top", 0)
    document.add_heading("Install", 2)
    document.add_paragraph("Before the table.")
    document.add_paragraph("step", style="List Bullet")
    table = document.add_table(2, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "left", "right"
    table.cell(1, 0).merge(table.cell(1, 1)).text = "merged"
    document.add_paragraph("After it.")
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()
