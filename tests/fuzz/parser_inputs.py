"""Initial inputs, and strategies that mutate them."""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import docx
from hypothesis import strategies as st

from tests.fuzz.credential_parsers import CREDENTIAL_FOUND, CREDENTIAL_PARSERS, credential_inputs
from tests.fuzz.parsers import MEMBERS
from tests.fuzz.request_parsers import REQUEST_FOUND, REQUEST_PARSERS, request_inputs
from tests.fuzz.vendor_parsers import VENDOR_FOUND, VENDOR_PARSERS, vendor_inputs
from tests.support.formats.office import (
    commented,
    odt,
    slides,
    slides_of_opendocument,
    small_workbook,
    spreadsheet,
)
from tests.support.formats.others import book
from tests.support.formats.outlook import message as outlook_message
from tests.support.formats.pdfs import form, hyphenated, wrapped_cells
from tests.support.formats.scans import Sheet, file_of, pdf_of, prose

_ELSEWHERE: Final = (
    (CREDENTIAL_PARSERS, credential_inputs),
    (REQUEST_PARSERS, request_inputs),
    (VENDOR_PARSERS, vendor_inputs),
)
_OLD_WORKBOOK: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
_EVENTS: Final = Path(__file__).parents[2] / "events"
_PDF: Final = b"""%PDF-1.4
1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj
2 0 obj << /Type /Pages /Kids [3 0 R] /Count 1 >> endobj
3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R
   /Resources << /Font << /F 5 0 R >> >> >> endobj
4 0 obj << /Length 30 >> stream
BT /F 9 Tf 1 1 Td (Hello) Tj ET
endstream endobj
5 0 obj << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> endobj
trailer << /Root 1 0 R >>
"""
_SHEET: Final = Sheet(prose(["Text."]))
_MARKDOWN: Final = (
    b"# A\n\nText with **bold** [1].\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = 1\n```\n\n## B\n- one\n"
)
_MAIL: Final = b"""Subject: =?utf-8?q?K=C3=A4se?=
From: "Ann" <ann@example.com>
Date: Mon, 02 Mar 2026 10:00:00 +0100
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/plain; charset="utf-8"
Content-Transfer-Encoding: quoted-printable

flower=20pot
--b
Content-Type: application/pdf
Content-Disposition: attachment; filename="a.pdf"
Content-Transfer-Encoding: base64

eA==
--b--
"""
_EVENT: Final = rb"""BEGIN:VEVENT
SUMMARY:A\, b
  c
DTSTART;TZID=Asia/Tokyo:20260302T100000
DTEND;VALUE=DATE:20260303
RRULE:FREQ=DAILY;COUNT=3
ATTENDEE;CN="B: C";PARTSTAT=DECLINED:mailto:b@c.d
END:VEVENT
"""
_NOTEBOOK: Final[Mapping[str, Any]] = {
    "nbformat": 4,
    "metadata": {"kernelspec": {"language": "python"}},
    "cells": [
        {"cell_type": "markdown", "source": ["# A\n", "b"]},
        {"cell_type": "code", "source": "x = '```'", "outputs": []},
    ],
}
_FILTERS: Final = (
    {"year": {"$gte": 2024, "$lt": 2025.5}, "kind": {"$in": ["a", None, True]}},
    {"$or": [{"a.b": {"$contains": "x"}}, {"$not": {"c": {"$exists": False}}}], "d": {"$not": {"$ne": [1]}}},
)


@cache
def inputs(parser: str) -> Sequence[bytes]:
    """Return valid inputs of the parser, at least one."""
    for names, others in _ELSEWHERE:
        if parser in names:
            return others(parser)
    if parser in MEMBERS:
        _, document, member = MEMBERS[parser]
        with zipfile.ZipFile(io.BytesIO(document())) as archive:
            return [archive.read(member)]
    return {
        "text": [
            b"Plain text.\r\nTwo lines.",
            "\ufeffGr\u00fc\u00dfe".encode("utf-16"),
            b"caf\xe9 \x93quoted\x94",
        ],
        "csv": [b'name,price\nRefund,5\n"a,b",\n', b"a;b\n1;2\n", b"a\tb\n1\t2\n"],
        "jsonl": [b'{"id": "1", "title": "T", "text": "Body.", "year": 2024}\n{"content": "More."}\n'],
        "html": [
            b"<html><title>T</title><main><h1>A</h1><table><tr><td>1</table><pre>x</pre><ul><li>y</main>",
            b"<p hidden>a<div style='display: none' id=b>c</div><a aria-controls=b>10<sup>3</sup>",
        ],
        "docx": [_word()],
        "pdf": [_PDF, hyphenated(1).content, wrapped_cells(2).content, pdf_of([_SHEET]), form()],
        "image": [file_of(_SHEET, kind, dots_per_inch=20) for kind in ("PNG", "JPEG", "TIFF")],
        "pptx": [slides(1).content],
        "workbook": [small_workbook(), _OLD_WORKBOOK, spreadsheet()],
        "odt": [odt(1).content, commented()],
        "odp": [slides_of_opendocument()],
        "epub": [book(1).content],
        "outlook": [outlook_message("T", "Ann", "Body.", {"a.csv": b"a,b\n1,2\n"})],
        "xml": [
            b'<?xml version="1.0"?><r a="1"><title>T</title><i><x>1</x><y>2</y></i><p>m <b>n</b></p></r>'
        ],
        "transcript": [
            b"WEBVTT\n\nNOTE x\n\n1\n00:01.000 --> 00:02.000\n<v.a Ann>Hi <c>&amp;</c></v>\n<v Bo>Yes.\n",
            b"1\n00:00:01,000 --> 00:00:02,000\n{\\an8}Bo: <i>So</i>\n\n2\n1:00:03 --> 1:00:04\nBo: it is.",
        ],
        "calendar": [
            _EVENT,
            b"BEGIN:VCARD\nN:A;B;;;\ni.TEL;CELL:1\nNOTE;QUOTED-PRINTABLE:a=C3=\n=A4\nEND:VCARD",
        ],
        "zip": [_archive()],
        "markdown": [
            b"---\ntitle: A\ntags: [b, 2, 2024-01-02]\nd: 1.5\n---\n# T\n",
            b"a <!-- c --> `<!--` b\n<!--\n-->\n~~~\n<!-- x -->\n~~~\n",
        ],
        "mail": [_MAIL],
        "notebook": [json.dumps(_NOTEBOOK).encode()],
        "json": [b'{"title": "T", "a": {"b": [1, 2.50, "x\\ny"], "c": [{"d": true}, [null]]}, "e": NaN}'],
        "rtf": [
            rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0\fcharset0 Arial;}}\f0\b Bold\b0\par \u228?\'e4\tab x}",
            rb"{\rtf1{\pard A{\footnote B}{\shp{\*\shpinst{\shptxt \pard C\par}}}{\v D}\par}}",
            rb"{\rtf1{\pard A{\v {\*\atnid B}{\*\atnauthor \'e9}\chatn {\*\annotation{\*\atnref 0}C}}\par}}",
        ],
        "rst": [
            b"T\n=\n\n:a: b\n\n.. x:: y\n   :o: 1\n\n   :r:`t <u>` |s| [1]_\n\n.. [1] n\n",
            b".. list-table::\n\n   * - A\n     - B\n\n.. code-block:: c\n   :z:\n\n   x\n",
            b"+--+--+\n|a |b |\n+--+--+\n\n* * a\n\n  1. b\n\nc\n   d\n\n| e\n| f\n\n== ==\na  b\n== ==\n",
        ],
        "passages": [_MARKDOWN, b"word " * 400],
        "filter": [json.dumps(one).encode() for one in _FILTERS],
        "answer": [
            b'3{"answer": "Five \\u00e4 \\"days\\" [1].", "sources": [1, {"a": "b"}]}',
            b'1```json\n{"answer": "x"}\n```',
        ],
        "vendor-events": [b'3event: a\r\ndata: {"x":1}\r\n\r\n: ping\n\ndata: a\ndata:b\n\ndata: [DONE]'],
        "citations": [b"Five days [1], [Source 2]; `[3]` [4, 5](x) [1\xe2\x80\x933]", b"See Source: a - T."],
        "log-message": [_log_message(), b'{"type": "query_log_pointer"}'],
        "queue-message": [_bodies("ingest_sqs_job"), _bodies("ingest_sqs_s3_notification")],
        "bulk-batch": [(_EVENTS / "ingest_step_functions_batch.json").read_bytes()],
        "http-event": [path.read_bytes() for path in sorted(_EVENTS.glob("query_*.json"))],
    }[parser]


def spoiled(parser: str) -> st.SearchStrategy[bytes]:
    """Return a strategy of mutated inputs: changed bytes, or values of JSON."""
    choices = [_spoiled_bytes(one) for one in inputs(parser)]
    choices += [_spoiled_json(value) for one in inputs(parser) if (value := _value(one)) is not None]
    return st.one_of(st.binary(max_size=200), *choices)


@st.composite
def _spoiled_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(changed)))
        changed[begin : begin + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(changed)


_ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def _spoiled_json(draw: st.DrawFn, value: Any) -> bytes:
    for _ in range(draw(st.integers(1, 3))):
        value = _replaced(draw, value)
    return json.dumps(value).encode()


def _replaced(draw: st.DrawFn, value: Any) -> Any:
    """Return the value with one part, or all of it, replaced by any value."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 5)) == 0:
        return draw(_ANYTHING)
    if isinstance(value, list):
        place = draw(st.integers(0, len(value) - 1))
        return [_replaced(draw, part) if n == place else part for n, part in enumerate(value)]
    chosen = draw(st.sampled_from(sorted(value)))
    if draw(st.integers(0, 8)) == 0:
        return {name: part for name, part in value.items() if name != chosen}
    return {name: _replaced(draw, part) if name == chosen else part for name, part in value.items()}


def _value(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None


def _archive() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", "Text.")
        archive.writestr("c.jsonl", '{"text": "x"}\n')
    return content.getvalue()


def _word() -> bytes:
    document, content = docx.Document(), io.BytesIO()
    document.add_heading("A", 1)
    document.add_paragraph("Text.")
    document.add_table(1, 2).cell(0, 0).text = "x"
    document.save(content)
    return content.getvalue()


def _bodies(event: str) -> bytes:
    records = json.loads((_EVENTS / f"{event}.json").read_text())["Records"]
    return str(records[0]["body"]).encode()


def _log_message() -> bytes:
    return _bodies("log_writer_sqs_batch")


def _damaged_word() -> bytes:
    """Return a Word document with a stream that cannot be inflated."""
    content = bytearray(_word())
    begin = content.index(b"word/document.xml") + len("word/document.xml")
    content[begin : begin + 8] = b"\xff" * 8
    return bytes(content)


_WRITTEN: Final = b"""{"Records": [
    {"s3": {"object": {"key": "%s"}, "bucket": {"name": "b"}}, "eventName": "ObjectCreated:Put"}
]}"""
FOUND: Final[Mapping[str, Sequence[bytes]]] = {
    "docx": [_damaged_word()],
    "markdown": [b'---\ntitle: "\\ud800\\0"\nx: "\\0"\n---\nText.'],
    "queue-message": [
        b'{"Records": [{"s3": {"object": {"key": 5}, "bucket": {"name": "b"}}, "eventName": "ObjectC"}]}',
        b'{"Records": [{"s3": {"object": {"key": "k"}, "bucket": {"name": "b"}}, "eventName": 3}]}',
        _WRITTEN % b"t/c/a%00",
        _WRITTEN % b"t/c/\\ud800",
        (_WRITTEN % b"t/c/a").replace(b'"name": "', b'"name": "\\u0000'),
    ],
    "http-event": [b'{"version": "2.0", "requestContext": {"http": {}}, "headers": {"\\ud800": ""}}'],
    **CREDENTIAL_FOUND,
    **REQUEST_FOUND,
    **VENDOR_FOUND,
}
"""Inputs of earlier findings."""
