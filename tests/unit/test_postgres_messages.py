"""Parsing a PostgreSQL client's bytes, however they are split."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.postgres.postgres_messages import (
    CANCEL_REQUEST,
    MAX_STARTUP_BYTES,
    SSL_REQUEST,
    Message,
    MessageReader,
    StartupPacket,
    read_startup,
)


def encoded(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def startup(code: int, body: bytes = b"") -> bytes:
    return struct.pack("!II", len(body) + 8, code) + body


texts = st.binary(max_size=40).map(lambda text: text.replace(b"\0", b""))
names = st.text("abc", max_size=3)
messages = st.one_of(
    texts.map(lambda text: (encoded(b"Q", text + b"\0"), Message("Query", text=text))),
    st.tuples(names, texts, st.binary(max_size=9)).map(
        lambda parts: (
            encoded(b"P", parts[0].encode() + b"\0" + parts[1] + b"\0" + parts[2]),
            Message("Parse", parts[0], parts[1]),
        )
    ),
    st.tuples(names, st.binary(max_size=600)).map(
        lambda parts: (encoded(b"B", parts[0].encode() + b"\0" + parts[1]), Message("Bind", parts[0]))
    ),
    st.binary(max_size=9).map(lambda body: (encoded(b"F", body), Message("FunctionCall"))),
    st.binary(max_size=300).map(lambda body: (encoded(b"d", body), Message("other"))),
    st.just((encoded(b"S", b""), Message("Sync"))),
    st.sampled_from([b"X", b"H", b"c"]).map(lambda kind: (encoded(kind, b""), Message("other"))),
)


@given(sent=st.lists(messages, max_size=8), cuts=st.lists(st.integers(0, 2000), max_size=20))
def test_messages_are_parsed_for_any_chunk_boundaries(
    sent: list[tuple[bytes, Message]], cuts: list[int]
) -> None:
    data = b"".join(part for part, _ in sent)
    places = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    reader = MessageReader()
    found = [
        message
        for start, end in zip(places, [*places[1:], None], strict=True)
        for message in reader.feed(data[start:end])
    ]
    assert found == [message for _, message in sent]


def test_messages_fed_byte_by_byte_are_parsed() -> None:
    data = encoded(b"Q", b"SELECT 1\0") + encoded(b"P", b"name\0SELECT 2\0\0\0")
    reader = MessageReader()
    found = [message for place in range(len(data)) for message in reader.feed(data[place : place + 1])]
    assert found == [Message("Query", text=b"SELECT 1"), Message("Parse", "name", b"SELECT 2")]


def test_long_message_is_truncated_and_next_message_parsed() -> None:
    reader = MessageReader()
    long = encoded(b"Q", b"x" * 1_000_000 + b"\0")
    [message] = reader.feed(long[:100_000])
    assert 16 * 1024 < len(message.text) < 100_000
    assert reader.feed(long[100_000:] + encoded(b"Q", b"SELECT 1\0")) == [Message("Query", text=b"SELECT 1")]


def test_startup_packet_is_parsed_when_complete() -> None:
    packet = startup(3 << 16 | 2, b"user\0app\0database\0\0application_name\0a b\0\0")
    parameters = {"user": "app", "database": "", "application_name": "a b"}
    assert read_startup(packet + b"p...") == StartupPacket(3 << 16 | 2, parameters, len(packet))
    assert StartupPacket(3 << 16 | 2).version == (3, 2)
    for length in range(len(packet)):
        assert read_startup(packet[:length]) is None


def test_ssl_and_cancel_requests_are_parsed() -> None:
    assert read_startup(startup(SSL_REQUEST)) == StartupPacket(SSL_REQUEST, size=8)
    packet = startup(CANCEL_REQUEST, bytes(8))
    assert read_startup(packet) == StartupPacket(CANCEL_REQUEST, size=16)


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00\x01", bytes(4), struct.pack("!I", MAX_STARTUP_BYTES + 1)]
)
def test_invalid_startup_packet_raises(data: bytes) -> None:
    with pytest.raises(ValueError, match="startup"):
        read_startup(data)
