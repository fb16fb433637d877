"""Arguments of wrong types: each is an error that names the argument."""

from collections.abc import Callable
from typing import Any

import pytest

from vectorforge.client import RAGService
from vectorforge.errors import InvalidInputError

VECTOR = [0.1] * 64
CALLS: list[tuple[str, Callable[[RAGService, Any], Any], list[Any]]] = [
    ("query", lambda service, value: service.search_documents(value), [None, 5, b"cats", ["cats"]]),
    ("query", lambda service, value: service.query(value), [None, 5, b"cats", ["cats"]]),
    ("limit", lambda service, value: service.search_documents("cats", value), ["3", 2.5, True, None, 0, 101]),
    ("limit", lambda service, value: service.storage.search(VECTOR, value), ["3", 2.5, True, None, 0, 1001]),
    (
        "mmr_lambda",
        lambda service, value: service.search_documents("cats", mmr_lambda=value),
        ["0.5", [1], 2, float("nan")],
    ),
    ("query_vector", lambda service, value: service.storage.search(value), [b"x", "abc", 5, [None] * 64]),
    ("variant", lambda service, value: service.query("cats", variant=value), [["precise"], 5]),
    ("text", lambda service, value: service.embedder.embed_text(value), [None, 5, b"cats", ["cats"]]),
    ("texts", lambda service, value: service.embedder.embed_batch(value), ["abc", "", b"abc", None, 5]),
    ("texts.1", lambda service, value: service.embedder.embed_batch(["cats", value]), [None, 5, b"x", ["a"]]),
    ("vector_size", lambda service, value: service.storage.create_collection(value), ["64", 2.5, True, 0]),
]


def test_argument_of_wrong_type_is_an_error_that_names_it(service: RAGService) -> None:
    for field, call, values in CALLS:
        for value in values:
            with pytest.raises(InvalidInputError) as caught:
                call(service, value)
            assert caught.value.field == field, value


def test_texts_may_be_any_iterable(service: RAGService) -> None:
    of_list = service.embedder.embed_batch(["cats", "dogs"])
    assert service.embedder.embed_batch(text for text in ("cats", "dogs")) == of_list  # type: ignore[arg-type]
