"""The metadata before a streamed response."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.runtime import ProtocolError
from vectorforge.runtime.response_stream import DELIMITER, MAX_PRELUDE_BYTES, prelude

HEADERS = [
    (b"Content-Type", b"text/plain"),
    (b"x-several", b"a"),
    (b"X-Several", b"b"),
    (b"set-cookie", b"c=1, d"),
    (b"Set-Cookie", b"e=2"),
    (b"transfer-encoding", b"chunked"),
]


def read(encoded: bytes) -> dict[str, Any]:
    head, delimiter, rest = encoded.partition(DELIMITER)
    assert (delimiter, rest) == (DELIMITER, b"")
    decoded: dict[str, Any] = json.loads(head)
    return decoded


def test_repeated_headers_are_joined_and_cookies_are_separate() -> None:
    assert read(prelude(201, HEADERS, multi_value_headers=False)) == {
        "statusCode": 201,
        "headers": {"content-type": "text/plain", "x-several": "a, b"},
        "cookies": ["c=1, d", "e=2"],
    }


def test_repeated_headers_with_payload_1_are_multi_value() -> None:
    assert read(prelude(200, HEADERS, multi_value_headers=True)) == {
        "statusCode": 200,
        "headers": {"content-type": "text/plain"},
        "multiValueHeaders": {"x-several": ["a", "b"]},
        "cookies": ["c=1, d", "e=2"],
    }


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: x=1", b"a\nb", b"a\rb", b"a\0b"])
def test_line_break_in_header_value_is_rejected_without_echo(value: bytes) -> None:
    with pytest.raises(
        ProtocolError, match=r"The response header 'x-name' has a line break or a NUL\."
    ) as error:
        prelude(200, [(b"x-name", value)], multi_value_headers=False)
    assert "x=1" not in str(error.value)


@pytest.mark.parametrize("name", [b"", b"a b", b"a:b", b"a\r\nb", b"\xff"])
def test_invalid_header_name_is_rejected(name: bytes) -> None:
    with pytest.raises(ProtocolError, match="name of a response header"):
        prelude(200, [(name, b"value")], multi_value_headers=False)


@pytest.mark.parametrize("status", [99, 600, "200", None, True])
def test_invalid_status_is_rejected(status: object) -> None:
    with pytest.raises(ProtocolError, match="100 to 599"):
        prelude(status, [], multi_value_headers=False)


def test_prelude_over_16_kilobytes_is_rejected() -> None:
    empty = len(prelude(200, [(b"x", b"")], multi_value_headers=False))
    fits = prelude(200, [(b"x", b"a" * (MAX_PRELUDE_BYTES - empty))], multi_value_headers=False)
    assert len(fits) == MAX_PRELUDE_BYTES
    with pytest.raises(ProtocolError, match="16384 bytes"):
        prelude(200, [(b"x", b"a" * (MAX_PRELUDE_BYTES - empty + 1))], multi_value_headers=False)


@given(value=st.binary(max_size=50), multiple=st.booleans())
def test_any_header_value_round_trips_or_is_rejected(value: bytes, multiple: bool) -> None:
    try:
        encoded = prelude(200, [(b"x-any", value)], multi_value_headers=multiple)
    except ProtocolError:
        assert any(byte in value for byte in b"\r\n\0")
    else:
        text = read(encoded)["headers"]["x-any"]
        assert value in (text.encode(), text.encode("latin-1", "replace"))


@pytest.mark.parametrize("value", ["é".encode(), "é".encode("latin-1")])
def test_header_value_is_decoded_as_utf_8_or_latin_1(value: bytes) -> None:
    encoded = prelude(200, [(b"x-any", value)], multi_value_headers=False)
    assert read(encoded)["headers"]["x-any"] == "é"
