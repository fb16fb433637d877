"""Files that are not plain text inside: mail, notebooks, JSON, rich text, front matter; and titles."""

import email
import email.policy
import io
import json
import re
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import docx
import pytest

from tests.support.documents import one, pdf, reason
from vectorforge.api.native.pages import page_response
from vectorforge.errors import ExtractionError
from vectorforge.ingestion.extract import extract, media

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "file-types.md").read_text()


def mail(body: str, *, html: str | None = None, attachment: str | None = None) -> bytes:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = (
        "Käse order",
        "Ann <ann@example.com>",
        "shop@example.com",
    )
    message["Date"] = "Mon, 02 Mar 2026 10:00:00 +0100"
    message.set_content(body, cte="quoted-printable")
    if html is not None:
        message.add_alternative(html, subtype="html")
    if attachment is not None:
        message.add_attachment(b"%PDF-1.4", maintype="application", subtype="pdf", filename=attachment)
    return message.as_bytes()


def notebook(*cells: tuple[str, str], **fields: Any) -> bytes:
    made = [
        {
            "cell_type": kind,
            "source": source.splitlines(keepends=True),
            "metadata": {},
            "outputs": [{"text": "OUT"}],
        }
        for kind, source in cells
    ]
    kernel = {"kernelspec": {"language": "python", "name": "python3"}}
    return json.dumps(
        {"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5, **fields}
    ).encode()


class TestMail:
    def test_mail_is_stored_as_headers_and_decoded_body(self) -> None:
        document = one(mail("The key lies under the flower pot.\nÄrger droht."), "a.eml")
        assert document.title == "Käse order"
        assert document.text.startswith("Subject: Käse order\nFrom: Ann <ann@example.com>\n")
        assert document.text.endswith("\n\nThe key lies under the flower pot.\nÄrger droht.")
        assert "=20" not in document.text
        assert "MIME" not in document.text
        assert document.metadata == {
            "from": "Ann <ann@example.com>",
            "to": "shop@example.com",
            "date": "2026-03-02T10:00:00+01:00",
        }

    def test_mail_prefers_plain_text_and_warns_about_attachments(self) -> None:
        document = one(mail("Plain.", html="<p>Rich.", attachment="bill.pdf"), "a.eml")
        assert document.text.endswith("Plain.")
        assert document.warnings == ("Attachments are not read: bill.pdf.",)

    def test_mail_attached_to_mail_is_read_to_a_bounded_depth(self) -> None:
        message = email.message_from_bytes(mail("Depth 5."), policy=email.policy.default)
        for depth in range(4, -1, -1):
            outer = email.message_from_bytes(mail(f"Depth {depth}."), policy=email.policy.default)
            outer.replace_header("Subject", f"Level {depth}")
            outer.add_attachment(message)
            message = outer
        document = one(message.as_bytes(), "a.eml")
        text = document.text
        names = "Level 1: Level 2: Level 3"
        assert document.warnings == (f"{names}: Attachments are not read: Level 4.",)
        assert [f"Depth {depth}." in text for depth in range(6)] == [True] * 4 + [False] * 2
        assert "# Attachment: Level 1\n\nSubject: Level 1\nFrom: Ann" in text

    def test_mail_file_attached_to_mail_is_read(self) -> None:
        outer = email.message_from_bytes(mail("Outer."), policy=email.policy.default)
        outer.add_attachment(mail("Inner."), maintype="application", subtype="octet-stream", filename="b.eml")
        assert one(outer.as_bytes(), "a.eml").text.endswith("Inner.")

    def test_mail_of_html_alone_is_read_as_a_page(self) -> None:
        message = EmailMessage()
        message["Subject"] = "S"
        message.set_content("<h1>Offer</h1><script>x()</script><p>Ten <b>days</b>.", subtype="html")
        assert one(message.as_bytes(), "a.eml").text.endswith("# Offer\n\nTen days.")

    def test_mail_without_body_is_rejected(self) -> None:
        assert reason(b"Subject: only\n\n", "a.eml") == "empty"

    def test_media_type_identifies_mail(self) -> None:
        assert one(mail("x"), "message", "message/rfc822").title == "Käse order"


class TestNotebook:
    def test_notebook_is_stored_as_markdown_and_code_without_outputs(self) -> None:
        document = one(
            notebook(("markdown", "# Sales\n\nBy month."), ("code", "sum(x)\nprint()"), ("raw", "r")),
            "a.ipynb",
        )
        assert document.text == "# Sales\n\nBy month.\n\n```python\nsum(x)\nprint()\n```"
        assert document.title == "Sales"

    def test_notebook_uploaded_as_json_is_a_notebook(self) -> None:
        assert one(notebook(("markdown", "# A")), "a.ipynb", "application/json").text == "# A"

    @pytest.mark.parametrize(
        "content", [b"{", b"[]", b'{"cells": 5}', notebook(nbformat=3), b'{"nbformat": 4, "cells": [1]}']
    )
    def test_broken_notebook_is_rejected(self, content: bytes) -> None:
        assert reason(content, "a.ipynb") == "unreadable"

    def test_notebook_without_text_is_rejected(self) -> None:
        assert reason(notebook(("raw", "x")), "a.ipynb") == "empty"


class TestJson:
    def test_json_is_stored_as_keys_and_values(self) -> None:
        value = {
            "title": "Shop",
            "owner": {"name": "Ann", "phones": ["1", "2"], "none": None},
            "items": [{"sku": 7, "price": 1.10, "new": True}, {"sku": 8}],
            "about": "First line.\nSecond line.",
        }
        document = one(json.dumps(value).replace("1.1,", "1.10,").encode(), "a.json")
        assert document.text.split("\n\n") == [
            "# Shop",
            "owner.name: Ann; owner.phones: 1, 2",
            "items.sku: 7; items.price: 1.10; items.new: true",
            "items.sku: 8",
            "about: First line.\nSecond line.",
        ]
        assert document.title == "Shop"
        assert one(b'{"title": "Shop", "owner": "Ann"}', "a.json").text == "title: Shop; owner: Ann"

    def test_list_of_objects_reads_as_table(self) -> None:
        assert one(b'[{"a": 1, "b": "x"}, {"a": 2}, 3]', "a.json").text == "a: 1; b: x\n\na: 2\n\n3"

    @pytest.mark.parametrize(
        ("content", "suggestion"),
        [
            (b'{"a": 1', "line 1, column 8"),
            (b'{"a": 1}\n{"a": 2}', ".jsonl"),
            (b"[" * 100_000, "nested too deeply"),
            (b'["a", // comment\n 1]', ".txt"),
        ],
    )
    def test_broken_json_error_suggests_fix(self, content: bytes, suggestion: str) -> None:
        with pytest.raises(ExtractionError, match=re.escape(suggestion)) as failure:
            extract(content, source="a.json")
        assert failure.value.reason == "unreadable"

    @pytest.mark.parametrize("content", [b"{}", b"[null, {}]", b'""'])
    def test_json_without_values_is_rejected(self, content: bytes) -> None:
        assert reason(content, "a.json") == "empty"

    def test_lone_surrogates_and_nul_are_replaced(self) -> None:
        assert one(b'{"a": "x\\u0000\\ud800"}', "a.json").text == "a: x\ufffd\ufffd"


def test_rich_text_is_stored_without_its_markup() -> None:
    rtf = rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}\f0\b Refunds\b0\par The key is \'e4.\par}"
    document = one(rtf, "a.rtf")
    assert document.text == "Refunds\nThe key is ä."
    assert one(rtf, "download", "text/rtf").text == document.text
    assert one(rtf, "download").text == document.text  # by its first bytes


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("a.ppt", ".pptx"),
        ("a.doc", ".docx"),
    ],
)
def test_rejected_type_error_suggests_alternative(name: str, advice: str) -> None:
    with pytest.raises(ExtractionError, match=re.escape(advice)) as failure:
        extract(b"PK\x03\x04" + bytes(30), source=name)
    assert failure.value.reason == "unsupported_type"


class TestMarkdown:
    FRONT = b"""---
title: "Refunds: how"
tags: [money, "late, or not"]
year: 2024
date: 2026-03-02
draft: false
nested: {a: 1}
---
# Heading

Body.
"""

    TOML = b"""+++
title = "Refunds: how"
tags = ["money", "late, or not"]
year = 2024
date = 2026-03-02
draft = false
[nested]
a = 1
+++

# Heading

Body.
"""

    @pytest.mark.parametrize("content", [FRONT, TOML])
    def test_front_matter_sets_title_and_metadata(self, content: bytes) -> None:
        document = one(content, "a.md")
        assert document.title == "Refunds: how"
        assert document.text == "# Heading\n\nBody.\n"
        assert document.metadata == {
            "tags": ["money", "late, or not"],
            "year": 2024,
            "date": "2026-03-02",
            "draft": False,
        }

    def test_heading_is_title_without_front_matter_title(self) -> None:
        assert one(b"---\ntags: a\n---\n# T\n\nx", "a.md").title == "T"

    @pytest.mark.parametrize(
        "text",
        [
            "---\n\nA line between rules.\n\n---\n\nMore.",
            "---\na: b\n\nno end",
            "---\na: *x\nb: &x [1]\n---\nBody",
            "---\n" + "[" * 5_000 + "\n---\nBody",
            f"---\na: {'9' * 6_000}\n---\nBody",
            f"---\na: {'x' * 70_000}\n---\nBody",
            "+++\na = 1\n---\nBody",
            "+++\na = " + "[" * 5_000 + "\n+++\nBody",
        ],
    )
    def test_text_without_front_matter_is_unchanged(self, text: str) -> None:
        document = one(text.encode(), "a.md")
        assert document.text == text
        assert document.metadata == {}

    def test_invalid_front_matter_is_text_with_a_warning(self) -> None:
        warning = "The front matter is not valid TOML and was kept as text."
        assert one(b"+++\na: 1\n+++\nBody", "a.md").warnings == (warning,)

    def test_html_comments_are_removed(self) -> None:
        expected_text = "\n\nc `<!-- code -->`\n\n```html\n<!-- expected_text -->\n```\n\nd <!-- open"
        text = "a <!-- one --> b\n<!-- two\nlines -->" + expected_text
        assert one(text.encode(), "a.md").text == "a  b" + expected_text

    def test_comment_only_file_is_rejected_as_empty(self) -> None:
        assert reason(b"<!-- nothing -->\n", "a.md") == "empty"


class TestTitles:
    def test_docx_title_style_sets_title(self) -> None:
        document, content = docx.Document(), io.BytesIO()
        document.core_properties.title = "Word Document"
        document.add_paragraph("Travel policy", style="Title")
        document.add_paragraph("Text.")
        document.save(content)
        assert one(content.getvalue(), "a.docx").title == "Travel policy"

    @pytest.mark.parametrize(
        "title", ["untitled", "Untitled Document", "Microsoft Word - x.docx", "x.tmp", " "]
    )
    def test_placeholder_titles_are_dropped(self, title: str) -> None:
        assert one(pdf("Hello", title=title), "a.pdf").title is None


class TestPage:
    """``docs/use/file-types.md`` lists every supported and every rejected type, and no other."""

    def test_supported_types_are_listed(self) -> None:
        table = PAGE.partition("## Supported")[2].partition("\n## ")[0]
        assert set(re.findall(r"`(\.\w+)`", table)) == set(media.EXTENSIONS)

    def test_rejected_types_are_listed(self) -> None:
        table = PAGE.partition("## Rejected")[2].partition("\n## ")[0]
        assert set(re.findall(r"`(\.\w+)`", table)) == set(media.REFUSED)

    def test_upload_form_accepts_every_supported_type(self) -> None:
        page = bytes(page_response("index.html").body).decode()
        offered = set(re.search(r'id="files"[^>]* accept="([^"]*)"', page)[1].split(","))  # type: ignore[index]
        assert {name for name in offered if name.startswith(".")} == set(media.EXTENSIONS)
