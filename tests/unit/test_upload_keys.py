"""Keys of uploads: a client's key is parsed as its own document, never another tenant's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.aws.uploads import MAX_KEY_BYTES, UploadKey
from vectorforge.errors import ConflictError, InvalidInputError


@pytest.mark.parametrize(
    "path",
    [
        "handbook.pdf",
        "policies/Refunds & returns (2026).md",
        "a+b=c#d?e%20f\"g'h\\i{j}.txt",
        " leading and trailing ",
        "...",
        ".hidden/..x/y..",
        "日本語/Übung 👩‍🚀.md",
        "Screenshot 2026-11-22 at 9.41\u202fAM.txt",
        "x" * (MAX_KEY_BYTES - len("acme/docs/")),
    ],
)
def test_upload_path_round_trips_through_key(path: str) -> None:
    made = UploadKey.make("acme", "docs", path)
    assert made.key == f"acme/docs/{path}"
    assert UploadKey.parse(made.key) == made


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/passwd", "segments"),
        ("a//b", "segments"),
        ("folder/", "segments"),
        ("", "segments"),
        ("../other/docs/a.txt", "segments"),
        ("a/../../b", "segments"),
        ("./a.txt", "segments"),
        ("a/.", "segments"),
        ("${filename}", "dollar"),
        ("a/${filename}", "dollar"),
        ("a\0.txt", "control"),
        ("a\n.txt", "control"),
        ("a\x7f", "control"),
        ("a\x85", "control"),
        ("a\ufffd", "no text"),  # the rest of a NUL in JSON
        ("a\uffff", "no text"),
        ("a" + chr(0xD83D), "no text"),
        ("x" * (MAX_KEY_BYTES - len("acme/docs/") + 1), "at most 1014 bytes here, not 1015"),
        ("ü" * 508, "at most 1014 bytes here, not 1016"),
    ],
)
def test_invalid_upload_path_is_rejected(path: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        UploadKey.make("acme", "docs", path)
    assert caught.value.field == "path"


@pytest.mark.parametrize(
    ("tenant", "collection"),
    [
        ("acme/beta", "docs"),
        ("acme", "beta/docs"),
        ("..", "docs"),
        ("acme", ".."),
        ("acme", "."),
        ("acme", " docs"),
        ("acme", "docs\u00a0"),
        ("acme", "US$"),
        ("acme", "do\ncs"),
        ("", "docs"),
    ],
)
def test_ambiguous_names_are_rejected(tenant: str, collection: str) -> None:
    with pytest.raises(ConflictError, match="cannot be part of an object's key"):
        UploadKey.make(tenant, collection, "a.txt")


_NAMES = st.text(st.sampled_from("ab/. $\0é\n"), max_size=6)


@given(tenant=_NAMES, collection=_NAMES, path=_NAMES)
def test_any_upload_key_parses_to_same_parts(tenant: str, collection: str, path: str) -> None:
    try:
        made = UploadKey.make(tenant, collection, path)
    except (InvalidInputError, ConflictError):
        return
    assert (made.tenant_id, made.collection_name, made.path) == (tenant, collection, path)
    assert UploadKey.parse(made.key) == made
    assert ".." not in made.key.split("/")
