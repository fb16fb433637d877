"""The reader of mail: parts, attachments and mails within."""

import base64
import quopri
from collections.abc import Callable

import pytest

from tests.support.documents import one, reason
from tests.support.formats import others, outlook
from vectorforge.ingestion.extract import media

MAIL = b"Subject: Outer\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nOuter.\n--b\n"


def test_attachments_are_sections() -> None:
    document = one(others.mail().content, "a.eml")
    assert "# Attachment: notice.pdf\n\n" in document.text
    assert "\n\n## Notice\n\n" in document.text
    assert "# Attachment: book.xlsx\n\n## Sales\n\n" in document.text
    assert document.warnings == ("book.xlsx: Hidden sheets were left out: 1.",)


def test_outlook_mail_is_read_with_attachments() -> None:
    content = outlook.message(
        "Key", "Ann", "Under the pot.", {"a.csv": b"name,n\nx,1\n", "b.png": b"\x89PNG"}
    )
    document = one(content, "a.msg")
    assert document.text.startswith('Subject: Key\nFrom: "Ann" <Ann@example.com>\n\nUnder the pot.')
    assert document.text.endswith("# Attachment: a.csv\n\nname: x; n: 1")
    assert document.warnings == ("Attachments are not read: b.png.",)
    assert one(content, "download").media_type == media.OUTLOOK


def test_outlook_mail_with_stream_larger_than_the_file_is_rejected() -> None:
    content = bytearray(outlook.message("Key", "Ann", "Under the pot.", {}))
    entry = content.index("__substg1.0_1000001F".encode("utf-16-le"))  # the body
    content[entry + 120 : entry + 124] = (2**31).to_bytes(4, "little")
    assert reason(bytes(content), "a.msg") == "unreadable"


@pytest.mark.parametrize("encode", [base64.encodebytes, quopri.encodestring])
def test_encoded_mail_attached_to_mail_is_read(encode: Callable[[bytes], bytes]) -> None:
    name = b"base64" if encode is base64.encodebytes else b"Quoted-Printable"
    inner = encode("Subject: Inner\n\nThe key = lies under the größte pot.".encode())
    content = MAIL + b"Content-Type: message/rfc822\nContent-Transfer-Encoding: " + name + b"\n\n" + inner
    document = one(content + b"\n--b--\n", "a.eml")
    assert document.text.endswith(
        "Attachment: Inner\n\nSubject: Inner\n\nThe key = lies under the größte pot."
    )
    assert document.warnings == ()


def test_every_text_part_and_nested_attachment_is_read_in_order() -> None:
    html = b"Content-Type: text/html; charset=koi8-r\n\n<p>\xf7\xd4\xcf\xd2\xcf\xca.</p>\n--b\n"
    table = b'Content-Type: text/csv; name="x.csv"\n\na,b\n1,2\n'
    nested = b"Content-Type: multipart/mixed; boundary=i\n\n--i\n" + table + b"--i--\n--b\n"
    signature = b"Content-Type: application/pgp-signature\n\nabc\n--b--\n"
    document = one(MAIL + html + nested + signature, "a.eml")
    assert document.text == "Subject: Outer\n\nOuter.\n\nВторой.\n\n# Attachment: x.csv\n\na: 1; b: 2"
    assert document.warnings == ()


def test_mail_that_is_only_an_attachment_is_read() -> None:
    document = one(b'Subject: Scan\nContent-Type: text/csv; name="x.csv"\n\na,b\n1,2\n', "a.eml")
    assert document.text == "Subject: Scan\n\n# Attachment: x.csv\n\na: 1; b: 2"


def test_warnings_about_an_attachment_are_warnings_of_the_mail() -> None:
    content = MAIL + b'Content-Type: application/octet-stream; name="c.txt"\n\nCaf\xe9\n--b--\n'
    document = one(content, "a.eml")
    assert document.warnings == ("c.txt: The text is not UTF-8; read as Windows-1252.",)


def test_parts_that_are_not_read_are_named_once_by_file_name_or_type() -> None:
    image = b"Content-Type: image/png\nContent-Transfer-Encoding: base64\n\niVBORw0KGgo=\n"
    named = image.replace(b"png", b'png; name="logo.png"', 1)
    html = b"--r\nContent-Type: text/html\n\n<p>Outer.</p>\n--r\n" + image + b"--r\n" + named + b"--r--\n"
    related = b"Content-Type: multipart/related; boundary=r\n\n" + html
    body = b"--a\n\nOuter.\n--a\n" + related + b"--a\nContent-Type: text/x-amp-html\n\n<p>\n"
    body += b"--a\nContent-Type: text/calendar\n\nSUMMARY:Outing\n--a--\n"
    status = b"Content-Type: message/delivery-status\n\nReporting-MTA: dns; x.org\n\nAction: failed\n"
    parts = [b"Content-Type: multipart/alternative; boundary=a\n\n" + body, status, image, image]
    content = b"Subject: Outer\nContent-Type: multipart/mixed; boundary=b\n\n"
    document = one(content + b"".join(b"--b\n" + part for part in parts) + b"--b--\n", "a.eml")
    assert document.text == "Subject: Outer\n\nOuter.\n\nsummary: Outing"
    assert document.warnings == ("Attachments are not read: image/png, logo.png, message/delivery-status.",)


def test_attachment_after_many_pictures_is_read() -> None:
    picture = b"Content-Type: image/png\n\n\x89PNG\n--b\n"
    table = b'Content-Type: text/csv; name="x.csv"\n\na,b\n1,2\n--b--\n'
    document = one(MAIL + 20 * picture + table, "a.eml")
    assert document.text.endswith("# Attachment: x.csv\n\na: 1; b: 2")


def test_page_saved_by_a_browser_is_read_without_its_styles_and_pictures() -> None:
    head = b"From: <Saved by Blink>\nSubject: Saved\nContent-Type: multipart/related; boundary=r\n\n"
    page = b"--r\nContent-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n"
    page += b"Content-Location: https://example.org/\n\n<meta charset=utf-8><h1>Gr=C3=BC=C3=9Fe</h1>\n"
    style = b"--r\nContent-Type: text/css\nContent-Location: https://example.org/a.css\n\np {}\n"
    image = b"--r\nContent-Type: image/png\nContent-Location: https://example.org/a.png\n\n\x89PNG\n--r--\n"
    document = one(head + page + style + image, "a.mhtml")
    assert document.text == 'Subject: Saved\nFrom: "Saved by Blink"\n\n# Grüße'
    assert document.warnings == ()
