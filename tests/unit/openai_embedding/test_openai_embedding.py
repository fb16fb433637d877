"""The OpenAI-compatible embedding provider, over a real socket."""

import json
import time
from email.utils import formatdate
from typing import Any

import pytest

from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer, Reply
from tests.support.vendors.hashing_embedder import hashed_vector
from tests.unit.openai_embedding.embedding_server import connected
from vectorforge.deadline import Deadline
from vectorforge.embedding.cache import InMemoryEmbeddingCache
from vectorforge.embedding.providers.openai import (
    OpenAIEmbeddingProvider,
)
from vectorforge.errors import (
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
)


async def test_embedding_request_matches_openai_documentation(server: FakeEmbeddingsServer) -> None:
    # D-009: model, and newlines replaced by spaces
    async with connected(server) as provider:
        vector = await provider.embed_query("two\nlines")
    assert server.requests == [
        {"input": ["two lines"], "model": "text-embedding-3-small", "encoding_format": "base64"}
    ]
    assert vector == pytest.approx(hashed_vector("two lines", 1536))
    assert len(vector) == 1536


async def test_other_servers_receive_text_unchanged(server: FakeEmbeddingsServer) -> None:
    async with connected(server, name="http", default_model="bge-m3") as provider:
        assert len(await provider.embed_query("two\nlines")) == provider.dimension() == 1536
    assert server.requests[0]["input"] == ["two\nlines"]


async def test_shortened_dimension_is_sent_in_request(server: FakeEmbeddingsServer) -> None:
    async with connected(server, default_model="text-embedding-3-large", dimension=256) as provider:
        assert len(await provider.embed_query("a")) == 256
    assert server.requests[0]["dimensions"] == 256


async def test_vectors_are_ordered_by_index(server: FakeEmbeddingsServer) -> None:
    # fault 48
    server.replies = [Reply(change=lambda items: items[::-1])]
    async with connected(server) as provider:
        vectors = await provider.embed_documents(["one", "two", "three"])
    assert vectors[0] == pytest.approx(hashed_vector("one", 1536))
    assert vectors[2] == pytest.approx(hashed_vector("three", 1536))


async def test_missing_index_falls_back_to_list_position(server: FakeEmbeddingsServer) -> None:
    # Gemini omits the index 0: https://github.com/samfoy/pi-session-search/issues/13
    def without_zero(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        del items[0]["index"]
        return items

    server.replies = [Reply(change=without_zero)]
    async with connected(server) as provider:
        first, _ = await provider.embed_documents(["one", "two"])
    assert first == pytest.approx(hashed_vector("one", 1536))


@pytest.mark.parametrize("texts", [["one"], ["one", "two"]])
async def test_single_vector_is_validated_as_strictly_as_many(
    server: FakeEmbeddingsServer, texts: list[str]
) -> None:
    async with connected(server) as provider:
        found = await provider.embed_documents(texts)
        assert found == [pytest.approx(hashed_vector(text, 1536)) for text in texts]
        for bad in ("AAAA\nAAAA", "AAA", "AAAA====", "ÄÄÄÄ"):
            server.replies = [changed("embedding", bad)]
            with pytest.raises(EmbeddingError, match="holds no embeddings"):
                await provider.embed_documents([text + bad for text in texts])


def changed(key: str, value: Any) -> Reply:
    """Return a response whose every item has this value, or the result of applying it to the old one."""

    def change(items: list[dict[str, Any]]) -> list[Any]:
        return [{**item, key: value(item[key]) if callable(value) else value} for item in items]

    return Reply(change=change)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(change=lambda items: items[1:]), "cannot be matched"),
        (Reply(change=lambda items: items[:1]), "1 vectors for 2 texts"),
        (changed("index", 0), "cannot be matched"),
        (changed("index", lambda index: index + 1), "cannot be matched"),
        (changed("index", []), "holds no embeddings"),
        (changed("embedding", [float("nan")] * 1536), "not finite"),
        (changed("embedding", [0.5] * 3), "3 dimensions"),
        (changed("embedding", "%%%"), "holds no embeddings"),
        (changed("embedding", ["a"]), "holds no embeddings"),
        (changed("embedding", None), "holds no embeddings"),
        (Reply(body='{"data": [{"embedd'), "holds no embeddings"),
        (Reply(body="[]"), "holds no embeddings"),
        (Reply(body={"data": None}), "holds no embeddings"),
        (Reply(body={"data": [None, None]}), "holds no embeddings"),
    ],
)
async def test_invalid_responses_are_rejected_without_retry(
    server: FakeEmbeddingsServer, reply: Reply, message: str
) -> None:
    # fault 48
    server.replies = [reply]
    async with connected(server) as provider:
        with pytest.raises(EmbeddingError, match=message):
            await provider.embed_documents(["one", "two"])
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "error", "retryable"),
    [
        (Reply(status=500), EmbeddingError, True),
        (Reply(status=503), EmbeddingError, True),
        (Reply(status=408), EmbeddingError, True),
        (Reply(status=403), EmbeddingAuthenticationError, False),
        (Reply(status=404), EmbeddingError, False),
        (Reply(status=418), EmbeddingError, False),
        (Reply(status=400), EmbeddingInputError, False),
        (Reply(status=429), EmbeddingRateLimitError, True),
        (Reply(hangs_up=True), EmbeddingError, True),
    ],
)
async def test_http_failures_map_to_embedding_errors(
    server: FakeEmbeddingsServer, reply: Reply, error: type[EmbeddingError], retryable: bool
) -> None:
    # D-010, A-015
    server.replies = [reply]
    async with connected(server, retries=0) as provider:
        with pytest.raises(EmbeddingError) as caught:
            await provider.embed_query("a")
    assert type(caught.value) is error
    assert caught.value.retryable is retryable
    assert "our words" not in caught.value.message
    assert caught.value.__cause__ is not None


async def test_server_errors_are_retried_by_provider_not_sdk(server: FakeEmbeddingsServer) -> None:
    server.replies = [Reply(status=500), Reply(status=503)]
    async with connected(server, retries=2) as provider:
        await provider.embed_query("a")
    assert len(server.requests) == 3


async def test_retry_after_header_is_exposed_in_error(server: FakeEmbeddingsServer) -> None:
    in_a_minute = formatdate(time.time() + 60, usegmt=True)
    server.replies = [
        Reply(status=429, headers={"retry-after": value}) for value in ("7.5", in_a_minute, "soon", "-3")
    ]
    waits = []
    async with connected(server, retries=0) as provider:
        for _ in range(4):
            with pytest.raises(EmbeddingRateLimitError) as caught:
                await provider.embed_query("a", deadline=Deadline.after(5))
            waits.append(caught.value.retry_after_s)
    assert waits == [7.5, pytest.approx(60, abs=5), None, None]


async def test_exhausted_quota_is_not_retried(server: FakeEmbeddingsServer) -> None:
    server.replies = [Reply(status=429, body={"error": {"code": "insufficient_quota", "message": "x"}})]
    async with connected(server) as provider:
        with pytest.raises(EmbeddingRateLimitError):
            await provider.embed_query("a")
    assert len(server.requests) == 1


async def test_wrong_key_is_hidden_from_error_and_repr(server: FakeEmbeddingsServer) -> None:
    async with connected(server, key="sk-wrong-key-0987") as provider:
        with pytest.raises(EmbeddingAuthenticationError) as caught:
            await provider.embed_query("a")
        assert "sk-wrong" not in caught.value.message
        assert "sk-wrong" not in repr(vars(provider))
    assert len(server.requests) == 1


async def test_unreachable_server_raises_retryable_error() -> None:
    provider = OpenAIEmbeddingProvider(api_key=None, base_url="http://127.0.0.1:9/v1", retries=0)
    with pytest.raises(EmbeddingError, match="cannot be reached") as caught:
        await provider.embed_query("a")
    assert caught.value.retryable
    await provider.aclose()


async def test_slow_server_raises_timeout(server: FakeEmbeddingsServer) -> None:
    server.replies = [Reply(delay_s=0.5)]
    async with connected(server, retries=0, timeout_s=0.05) as provider:
        with pytest.raises(EmbeddingTimeoutError):
            await provider.embed_query("a")


async def test_overlong_text_is_rejected_before_sending(server: FakeEmbeddingsServer) -> None:
    # fault 35
    async with connected(server) as provider:
        with pytest.raises(EmbeddingInputError, match=r"Text 1 is about \d+ tokens; .* most 8191") as caught:
            await provider.embed_documents(["short", "long " * 10_000, "short too"])
    assert caught.value.index == 1
    assert server.requests == []


async def test_text_rejected_by_server_is_identified(server: FakeEmbeddingsServer) -> None:
    # fault 35: the siblings of the rejected text are embedded
    server.refused_text = "forbidden"
    texts = ["a", "b", "c", "forbidden fruit", "e"]
    async with connected(server, cache=InMemoryEmbeddingCache()) as provider:
        with pytest.raises(EmbeddingInputError, match="rejected text 3") as caught:
            await provider.embed_documents(texts)
        assert caught.value.index == 3
        assert "forbidden" not in caught.value.message
        await provider.embed_documents([text for text in texts if text != "forbidden fruit"])


async def test_embedding_request_holds_at_most_300_000_tokens(server: FakeEmbeddingsServer) -> None:
    texts = [
        f"{number} " + "word " * 5_000 for number in range(60)
    ]  # 25,000 characters, about 6,250 tokens each
    async with connected(server) as provider:
        vectors = await provider.embed_documents(texts)
    assert len(vectors) == 60
    assert len(server.requests) == 2
    assert sum(len(request["input"]) for request in server.requests) == 60


async def test_cache_separates_servers_and_dimensions(server: FakeEmbeddingsServer) -> None:
    # C21
    cache = InMemoryEmbeddingCache()
    async with connected(server, cache=cache) as one, connected(server, cache=cache, dimension=64) as other:
        assert len(await one.embed_query("a")) == 1536
        assert len(await other.embed_query("a")) == 64
    async with FakeEmbeddingsServer(dimension=1536) as second, connected(second, cache=cache) as elsewhere:
        await elsewhere.embed_query("a")
        assert len(second.requests) == 1


async def test_html_error_page_raises_embedding_error(server: FakeEmbeddingsServer) -> None:
    server.replies = [Reply(status=502, body="<html>Bad gateway</html>"), Reply(body=json.dumps("hello"))]
    async with connected(server, retries=0) as provider:
        with pytest.raises(EmbeddingError, match="status 502"):
            await provider.embed_query("a")
        with pytest.raises(EmbeddingError, match="holds no embeddings"):
            await provider.embed_query("a")
