"""Every format, every encoding, and every way a document can be unreadable."""

import hashlib
import io
import json
import zipfile
import zlib
from pathlib import Path

import docx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.errors import ExtractionError, InvalidInputError
from vectorforge.ingestion.extract import extract, media, split
from vectorforge.ingestion.types import Cancellation, ExtractedDocument, ExtractionLimits

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

A | B
1 | 2

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


class TestFormats:
    def test_plain_text_keeps_every_character(self) -> None:
        text = "  Zürich\r\n\ttabs and  spaces \n\n"
        assert one(text.encode(), "notes.txt").text == text

    def test_markdown_title_is_its_first_heading(self) -> None:
        document = one(b"intro\n\n## Sub\n\n# The title ##\n\ntext", "a.md")
        assert (document.media_type, document.title) == (media.MARKDOWN, "The title")

    def test_html_keeps_the_main_text_with_headings(self) -> None:
        document = one(PAGE.encode(), "https://example.org/page.html?x=1")
        assert document.text == PAGE_TEXT
        assert document.title == "My page"

    def test_html_without_main_leaves_navigation_out(self) -> None:
        text = one(b"<nav>menu</nav><header>top</header><p>body</p><footer>f</footer>", "a.htm").text
        assert text == "body"

    def test_html_as_large_as_it_needs_a_child_process_reads_the_same(self) -> None:
        filler = "<p>" + "word " * 20_000 + "</p>"
        document = one(PAGE.replace("<h2>", filler + "<h2>").encode(), "a.html")
        assert document.text.startswith("# Install & run\n\nHello bold link text\nnext\n\nword word")
        assert document.text.endswith("outer\ninner")

    def test_html_says_its_encoding(self) -> None:
        page = '<meta charset="windows-1251"><p>Привет</p>'.encode("cp1251")
        assert one(page, "a.html").text == "Привет"

    def test_pdf_knows_where_its_pages_begin(self) -> None:
        document = one(pdf("First page", "", "Third page"), "report.pdf")
        assert document.title == "Report"
        assert [document.text[start:][:5] for start in document.page_starts] == ["First", "\n\nThi", "Third"]

    def test_docx_in_order(self) -> None:
        document = one(word_document(), "manual.docx")
        assert document.title == "Top"  # what readers see, before the property
        assert document.text.split("\n\n") == [
            "# Top",
            "## Install",
            "Before the table.",
            "- step",
            "left | right\nmerged",
            "After it.",
        ]

    def test_csv_rows_are_paragraphs(self) -> None:
        table = b'name;price\nApple;"1,5\n2"\n\nPear;2;extra\n'
        assert (
            one(table, "a.csv").text == "name: Apple; price: 1,5 2\n\nname: Pear; price: 2; column 3: extra"
        )

    def test_tsv(self) -> None:
        assert one(b"a\tb\n1,2\t3", "x", "text/tab-separated-values").text == "a: 1,2; b: 3"

    def test_media_type_goes_before_extension_before_content(self) -> None:
        assert one(b"# a", "a.md", "text/plain; charset=utf-8").media_type == media.PLAIN
        assert one(b"# a", "a.md", "application/octet-stream").media_type == media.MARKDOWN
        assert one(b"<!DOCTYPE html><p>x", "download").media_type == media.HTML
        assert one(pdf("x"), "download").media_type == media.PDF
        assert one(word_document(), "download").media_type == media.DOCX
        assert one(b"key: value", "settings.yaml").media_type == media.PLAIN


def hash_of(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:16]


class TestRecords:
    def test_a_line_is_a_document_with_its_text_unchanged(self) -> None:
        text = "  two  spaces\r\n\u2028and “quotes”\n"
        line = {"doc_id": "a/1", "title": "T", "text": text, "year": 1961, "tags": ["x"], "nested": {"a": 1}}
        file = (
            json.dumps(line, ensure_ascii=False) + "\n\n" + json.dumps({"content": "b", "metadata": {"k": 1}})
        )
        first, second = extract(file.encode(), source="corpus.jsonl")
        assert (first.source, first.title, first.text) == ("corpus.jsonl#a/1", "T", text)
        assert first.metadata == {"doc_id": "a/1", "year": 1961, "tags": ["x"]}
        assert (second.source, second.metadata) == (
            "corpus.jsonl#" + hash_of('{"content": "b", "metadata": {"k": 1}}'),
            {"k": 1},
        )

    def test_equal_ids_do_not_replace_each_other(self) -> None:
        parts = split(b'{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}', source="f.jsonl")
        assert [part.source for part in parts] == ["f.jsonl#1", "f.jsonl#1#2"]

    def test_a_line_without_an_id_is_named_by_its_content(self) -> None:
        first = split(b'{"text": "a"}\n{"text": "b"}\nbroken\n{"text": "b"}', source="f.jsonl")
        second = split(b'{"text": "b"}\r\n', source="f.jsonl")
        b = "f.jsonl#" + hash_of('{"text": "b"}')
        assert [part.source for part in first][1:] == [b, "f.jsonl#3", b + "#2"]
        assert [part.source for part in second] == [b]
        assert {part.parent_source for part in first} == {"f.jsonl"}

    def test_a_long_id_does_not_make_a_source_that_cannot_be_stored(self) -> None:
        [part] = split(json.dumps({"id": "x" * 3000, "text": "a"}).encode(), source="f.jsonl")
        assert len(part.source) == len("f.jsonl#") + 16

    # C33
    @pytest.mark.parametrize(
        "line", ["not json", "[1]", '{"title": "x"}', '{"text": 3}', '{"text": "a", "n": NaN}', "[" * 100_000]
    )
    def test_a_bad_line_fails_alone(self, line: str) -> None:
        parts = split(f'{{"text": "a"}}\n{line}\n{{"text": "b"}}'.encode(), source="f.jsonl")
        good, bad, also_good = parts
        assert reason(bad.content, bad.source, bad.media_type) == "unreadable"
        assert one(good.content, good.source, good.media_type).text == "a"
        assert one(also_good.content, also_good.source, also_good.media_type).text == "b"

    def test_nul_and_surrogates_everywhere(self) -> None:
        line = rb'{"text": "a\u0000b\ud800c", "title": "t\u0000", "metadata": {"k\u0000": ["\udfff"]}}'
        document = one(line, "f#1", media.RECORD)
        assert (document.text, document.title) == ("a\ufffdb\ufffdc", "t\ufffd")
        assert document.metadata == {"k\ufffd": ["\ufffd"]}
        assert "Replaced 5 characters" in document.warnings[0]


class TestDecoding:
    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-8"])
    def test_unicode(self, encoding: str) -> None:
        text = "Plain text with Ünïcode, long enough to tell.\n"
        document = one(text.encode(encoding), "a.txt")
        assert (document.text, document.warnings) == (text, ())

    def test_declared_character_set(self) -> None:
        text = "日本語のテキスト"
        assert one(text.encode("shift_jis"), "a", "text/plain; charset=Shift_JIS").text == text

    @pytest.mark.parametrize("charset", ["rot13", "unicode_escape", "no-such", "idna"])
    def test_other_codecs_of_python_are_not_character_sets(self, charset: str) -> None:
        assert one(rb"a\u0041", "a", f"text/plain; charset={charset}").text == r"a\u0041"

    def test_windows_1252_is_guessed_with_a_warning(self) -> None:
        document = one("Grüße – “x” €".encode("cp1252"), "a.txt")
        assert document.text == "Grüße – “x” €"
        assert "Windows-1252" in document.warnings[0]

    def test_mostly_utf8_stays_utf8(self) -> None:
        document = one("schön, Köln, Grüße ".encode() * 3 + b"\xff", "a.txt")
        assert document.text.endswith("Grüße \ufffd")
        assert "1 broken" in document.warnings[0]

    # faults.md row 34
    def test_nul_characters_are_replaced_and_counted(self) -> None:
        document = one(b"some\x00 text with two\x00 of them, and more", "a.txt")
        assert document.text == "some\ufffd text with two\ufffd of them, and more"
        assert "Replaced 2 " in document.warnings[0]

    @given(st.binary(max_size=300))
    def test_any_bytes_give_storable_text_or_a_typed_error(self, content: bytes) -> None:
        try:
            documents = extract(content, source="a.txt")
        except ExtractionError:
            return
        for document in documents:
            assert "\x00" not in document.text
            document.text.encode()


class TestUnreadable:
    def test_empty(self) -> None:
        assert reason(b"") == "empty"
        assert reason(b" \n\t", "a.md") == "empty"
        assert reason(b"<html><script>x</script>", "a.html") == "empty"
        assert reason(b"\n\n", "a.jsonl") == "empty"
        assert reason(b"a,b\n", "a.csv") == "empty"

    def test_encrypted_pdf(self) -> None:
        content = (Path(__file__).parent / "documents" / "encrypted.pdf").read_bytes()
        assert reason(content) == "encrypted"

    def test_scanned_pdf_says_so(self) -> None:
        with pytest.raises(ExtractionError, match="no text layer") as failure:
            extract(pdf("", ""), source="scan.pdf")
        assert failure.value.reason == "empty"

    def test_damaged(self) -> None:
        assert reason(b"%PDF-1.7 nothing") == "unreadable"
        assert reason(word_document()[:1000], "a.docx") == "unreadable"
        assert reason(b'a,b\n"x,y', "a.csv") == "unreadable"

    def test_docx_protected_by_a_password(self) -> None:
        container = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512) + "EncryptedPackage".encode("utf-16-le")
        assert reason(container, "a.docx") == "encrypted"

    def test_other_types(self) -> None:
        assert reason(b"\x89PNG\r\n\x1a\n" + bytes(100)) == "unsupported_type"
        assert reason(b"text", "a", "image/svg+xml") == "unsupported_type"
        assert reason(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "old.doc") == "unsupported_type"
        assert reason(bytes(range(256)) * 20, "picture.txt") == "undecodable"

    def test_too_large_names_the_limit(self) -> None:
        limits = ExtractionLimits(max_bytes=10, max_chars=5)
        with pytest.raises(ExtractionError, match="at most 10 ") as failure:
            extract(b"12345678901", source="a", limits=limits)
        assert failure.value.reason == "too_large"
        with pytest.raises(ExtractionError, match="longer than 5 ") as failure:
            extract(b"123456", source="a", limits=limits)
        assert failure.value.reason == "too_large"
        with pytest.raises(ExtractionError, match="longer than 5 "):
            extract(pdf("more text"), source="a", limits=ExtractionLimits(max_chars=5))

    def test_source(self) -> None:
        with pytest.raises(InvalidInputError, match="2,000"):
            extract(b"x", source="x" * 2001)


class TestHostileFiles:
    # faults.md row 43
    def test_zip_bomb(self) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", bytes(201 * 1024 * 1024))
        assert len(out.getvalue()) < 1_000_000
        assert reason(out.getvalue(), "bomb.docx") == "too_large"

    # faults.md row 43
    def test_pdf_that_inflates_without_end_ends_at_a_limit(self) -> None:
        blanks = zlib.compress(b" " * 400_000_000, 9)
        stream = zlib.compress(blanks + zlib.compress(b""), 9)  # 400 MB in a few hundred bytes
        head = f"<< /Length {len(stream)} /Filter [/FlateDecode /FlateDecode] >>\nstream\n".encode()
        small = b"<< /Length 32 >>\nstream\nBT /F1 12 Tf 72 700 Td (x) Tj ET"
        content = pdf("x").replace(small, head + stream)
        assert head in content
        assert len(content) < 5_000
        with pytest.raises(ExtractionError):
            extract(content, source="bomb.pdf", limits=ExtractionLimits(timeout_s=20))

    def test_deeply_nested_html_ends_at_the_time_limit(self) -> None:
        page = b"<div>" * 200_000 + b"deep"
        with pytest.raises(ExtractionError) as failure:
            extract(page, source="a.html", limits=ExtractionLimits(timeout_s=1))
        assert failure.value.reason == "too_large"

    def test_cancellation_ends_the_child_process(self) -> None:
        cancellation = Cancellation()
        cancellation.cancel()
        with pytest.raises(ExtractionError, match="cancelled"):
            extract(b"<div>" * 200_000 + b"deep", source="a.html", cancellation=cancellation)

    @given(
        st.lists(
            st.sampled_from(["<p>", "</p>", "<pre>", "<ul><li>", "text ", "<h1>", "</div>", "<td>", "<br>"])
        )
    )
    def test_any_nesting_of_tags_is_read(self, parts: list[str]) -> None:
        page = "<body>seen " + "".join(parts)
        assert one(page.encode(), "a.html").text.split().count("text") == parts.count("text ")
