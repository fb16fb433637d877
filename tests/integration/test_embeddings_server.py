"""The local model behind an OpenAI-compatible endpoint, used by the functions' provider."""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import aiohttp
import pytest

from vectorforge.embedding.providers.local import LocalEmbeddingProvider
from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider
from vectorforge.errors import EmbeddingError, EmbeddingInputError

TEXTS = ["The teapot sings.", "A kettle whistles."]


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "infra.emulator.deployment.embeddings_server", "--port", str(port)]
    )
    give_up_at = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
                break
        except urllib.error.URLError:
            assert process.poll() is None
            assert time.monotonic() < give_up_at
            time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/v1"
    process.terminate()
    process.wait(10)


def provider(base_url: str, model: str = "all-MiniLM-L6-v2") -> OpenAIEmbeddingProvider:
    return OpenAIEmbeddingProvider(
        name="http", api_key=None, base_url=base_url, default_model=model, dimension=384, retries=0
    )


async def test_server_vectors_match_the_local_model(base_url: str) -> None:
    remote, local = provider(base_url), LocalEmbeddingProvider()
    try:
        found, expected = await remote.embed_documents(TEXTS), await local.embed_documents(TEXTS)
        assert len(found) == len(TEXTS)
        for vector, local_vector in zip(found, expected, strict=True):
            assert vector == pytest.approx(local_vector, abs=1e-6)
    finally:
        await remote.aclose()
        await local.aclose()


async def test_unknown_model_raises_embedding_error(base_url: str) -> None:
    unknown = provider(base_url, "some-other-model")
    try:
        with pytest.raises(EmbeddingError) as failed:
            await unknown.embed_documents(TEXTS)
        assert not isinstance(failed.value, EmbeddingInputError)
    finally:
        await unknown.aclose()


async def test_blank_text_returns_400(base_url: str) -> None:
    body = {"model": "all-MiniLM-L6-v2", "input": ["  "]}
    async with aiohttp.ClientSession() as http, http.post(f"{base_url}/embeddings", json=body) as response:
        assert response.status == 400
        assert "is blank" in (await response.json())["error"]["message"]
