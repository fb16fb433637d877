"""Token estimates never wait for the network."""

import hashlib
import socket
from pathlib import Path

import pytest

from vectorforge import tokens
from vectorforge.tokens import estimate_tokens


@pytest.fixture(autouse=True)
def _fresh_encodings() -> None:
    tokens._encoding.cache_clear()
    tokens._load.cache_clear()


def test_token_estimate_without_local_table_is_a_quarter_of_chars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # C07
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    connections: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda *a: connections.append(a))
    assert estimate_tokens("x" * 401) == 100
    assert estimate_tokens("x" * 401, model="gpt-4o") == 100
    assert estimate_tokens("x" * 401, model="a-model-of-tomorrow") == 100
    assert connections == []


def test_corrupt_token_table_falls_back_to_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # C07
    """tiktoken would delete it and download another; it is not called at all."""
    url = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
    table = tmp_path / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    table.write_bytes(b"not a table")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    connections: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda *a: connections.append(a))
    assert estimate_tokens("x" * 400) == 100
    assert connections == []
    assert table.read_bytes() == b"not a table"


def test_tokens_of_a_long_text_are_extrapolated_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fault 47
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert estimate_tokens("x" * 101, sample_chars=10) == 20  # 2 of 10
    assert estimate_tokens("x" * 101, sample_chars=101) == 25
