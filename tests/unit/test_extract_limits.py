"""Unreadable, oversized and hostile documents."""

import io
import threading
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.documents import one, pdf, reason, word_document
from vectorforge.errors import ExtractionError, InvalidInputError
from vectorforge.ingestion.extract import extract
from vectorforge.ingestion.types import ExtractionLimits


class TestUnreadable:
    def test_empty_document_is_rejected(self) -> None:
        assert reason(b"") == "empty"
        assert reason(b" \n\t", "a.md") == "empty"
        assert reason(b"<html><script>x</script>", "a.html") == "empty"
        assert reason(b"\n\n", "a.jsonl") == "empty"
        assert reason(b"a,b\n", "a.csv") == "empty"

    def test_encrypted_pdf_is_rejected(self) -> None:
        content = (Path(__file__).parent / "documents" / "encrypted.pdf").read_bytes()
        assert reason(content) == "encrypted"

    def test_scanned_pdf_is_rejected_with_advice(self) -> None:
        with pytest.raises(ExtractionError, match="no text layer") as failure:
            extract(pdf("", ""), source="scan.pdf")
        assert failure.value.reason == "empty"

    def test_damaged_document_is_rejected(self) -> None:
        assert reason(b"%PDF-1.7 nothing") == "unreadable"
        assert reason(word_document()[:1000], "a.docx") == "unreadable"
        assert reason(b'a,b\n"x,y', "a.csv") == "unreadable"

    def test_docx_with_password_is_rejected(self) -> None:
        container = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512) + "EncryptedPackage".encode("utf-16-le")
        assert reason(container, "a.docx") == "encrypted"

    def test_unsupported_type_is_rejected(self) -> None:
        assert reason(b"\x89PNG\r\n\x1a\n" + bytes(100)) == "unsupported_type"
        assert reason(b"text", "a", "image/svg+xml") == "unsupported_type"
        assert reason(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), "old.doc") == "unsupported_type"
        assert reason(bytes(range(256)) * 20, "picture.txt") == "undecodable"

    def test_too_large_document_error_names_the_limit(self) -> None:
        limits = ExtractionLimits(max_bytes=10, max_chars=5)
        with pytest.raises(ExtractionError, match="at most 10 ") as failure:
            extract(b"12345678901", source="a", limits=limits)
        assert failure.value.reason == "too_large"
        with pytest.raises(ExtractionError, match="longer than 5 ") as failure:
            extract(b"123456", source="a", limits=limits)
        assert failure.value.reason == "too_large"
        with pytest.raises(ExtractionError, match="longer than 5 "):
            extract(pdf("more text"), source="a", limits=ExtractionLimits(max_chars=5))

    def test_empty_or_long_source_is_rejected(self) -> None:
        with pytest.raises(InvalidInputError, match="2,000"):
            extract(b"x", source="x" * 2001)


class TestHostileFiles:
    # faults.md row 43
    def test_zip_bomb_is_rejected(self) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", bytes(201 * 1024 * 1024))
        assert len(out.getvalue()) < 1_000_000
        assert reason(out.getvalue(), "bomb.docx") == "too_large"

    # faults.md row 43
    def test_pdf_bomb_stops_at_a_limit(self) -> None:
        blanks = zlib.compress(b" " * 400_000_000, 9)
        stream = zlib.compress(blanks + zlib.compress(b""), 9)  # 400 MB in a few hundred bytes
        head = f"<< /Length {len(stream)} /Filter [/FlateDecode /FlateDecode] >>\nstream\n".encode()
        small = b"<< /Length 32 >>\nstream\nBT /F1 12 Tf 72 700 Td (x) Tj ET"
        content = pdf("x").replace(small, head + stream)
        assert head in content
        assert len(content) < 5_000
        with pytest.raises(ExtractionError):
            extract(content, source="bomb.pdf", limits=ExtractionLimits(timeout_s=20))

    def test_deeply_nested_html_stops_at_the_time_limit(self) -> None:
        page = b"<div>" * 200_000 + b"deep"
        with pytest.raises(ExtractionError) as failure:
            extract(page, source="a.html", limits=ExtractionLimits(timeout_s=1))
        assert failure.value.reason == "too_large"

    def test_cancellation_stops_the_child_process(self) -> None:
        cancellation = threading.Event()
        cancellation.set()
        with pytest.raises(ExtractionError, match="cancelled"):
            extract(b"<div>" * 200_000 + b"deep", source="a.html", cancellation=cancellation)

    @given(
        st.lists(
            st.sampled_from(["<p>", "</p>", "<pre>", "<ul><li>", "text ", "<h1>", "</div>", "<td>", "<br>"])
        )
    )
    def test_any_tag_nesting_is_read(self, parts: list[str]) -> None:
        page = "<body>seen " + "".join(parts)
        assert one(page.encode(), "a.html").text.split().count("text") == parts.count("text ")
