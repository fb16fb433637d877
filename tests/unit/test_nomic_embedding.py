"""The Nomic embedder around its model: loaded late and once, unit vectors, prefixes, errors of ours."""

import math
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.vendors.sentence_encoder import HashingSentenceEncoder
from vectorforge.config import EmbeddingSettings, VectorForgeConfig
from vectorforge.embedding.providers.nomic import NomicEmbedder, NomicEmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError, EmbeddingError

# The used part of SentenceTransformer, as declared by sentence-transformers 5.
PACKAGE = """
class SentenceTransformer:
    def __init__(self, model_name_or_path=None, *, device=None, trust_remote_code=False, revision=None):
        if not trust_remote_code:
            raise ValueError("Loading it requires you to execute the code in that repo")
        self.name = model_name_or_path

    def encode(self, sentences, prompt_name=None, prompt=None, batch_size=32, show_progress_bar=None,
               convert_to_numpy=True, convert_to_tensor=False, device=None, normalize_embeddings=False):
        import numpy
        assert show_progress_bar is False
        rows = numpy.ones((len(sentences), 768), dtype=numpy.float32)
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True) if normalize_embeddings else rows
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package named sentence_transformers."""
    package = tmp_path / "sentence_transformers"
    package.mkdir()
    (package / "__init__.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("sentence_transformers", None)


def discovered(**values: Any) -> EmbeddingProviderRegistry:
    registry = EmbeddingProviderRegistry()
    registry.auto_discover(VectorForgeConfig(embedding=EmbeddingSettings(**values)))
    return registry


def test_nomic_embeds_each_text_as_one_unit_vector_in_order() -> None:  # B-028, B-030, C14
    embedder = NomicEmbedder(load=HashingSentenceEncoder)
    assert embedder.dimension == 768
    assert embedder.model_name == "nomic-ai/nomic-embed-text-v1.5"
    one, two = embedder.embed_batch(["one", "two"])
    assert [embedder.embed_text("one"), embedder.embed_text("two")] == [one, two]
    assert one != two
    assert {len(one), len(two)} == {768}
    assert type(one[0]) is float
    assert math.hypot(*one) == pytest.approx(1.0, abs=1e-6)
    assert embedder.embed_batch([]) == []


def test_nomic_model_is_loaded_once_across_threads() -> None:
    loads: list[str] = []

    def load(name: str) -> HashingSentenceEncoder:
        loads.append(name)
        return HashingSentenceEncoder(name)

    embedder = NomicEmbedder("a/model", load=load)
    assert not loads
    threads = [threading.Thread(target=embedder.embed_text, args=("x",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["a/model"]


async def test_nomic_with_package_is_discovered(installed: None) -> None:  # B-030, C14
    registry = discovered(default_provider="nomic")
    provider = registry.get_default()
    assert (provider.name, provider.dimension()) == ("nomic", 768)
    assert len(await provider.embed_query("x")) == 768  # loads with trust_remote_code, shows no progress
    await registry.aclose()


def test_nomic_without_package_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:  # C36: works without extras
    caplog.set_level("INFO")
    assert "nomic" not in discovered().list_providers()
    text = "Skipped embedding provider: nomic (pip install sentence-transformers einops)"
    assert text in caplog.messages


def test_nomic_without_package_error_names_install_command() -> None:
    with pytest.raises(ConfigurationError, match="pip install sentence-transformers einops"):
        NomicEmbedder().embed_text("x")


def test_nomic_errors_hide_texts() -> None:  # C22
    def offline(name: str) -> HashingSentenceEncoder:
        raise OSError("https://token@hub")

    class Broken(HashingSentenceEncoder):
        def encode(self, sentences: list[str], **_: Any) -> Any:
            raise RuntimeError("CUDA: " + sentences[0])

    with pytest.raises(EmbeddingError, match="could not be loaded") as caught:
        NomicEmbedder(load=offline).embed_text("x")
    assert "token" not in str(caught.value)
    with pytest.raises(EmbeddingError, match="failed") as caught:
        NomicEmbedder(load=Broken).embed_text("secret")
    assert "secret" not in str(caught.value)
    with pytest.raises(EmbeddingError, match="768"):
        NomicEmbedder(load=lambda name: HashingSentenceEncoder(name, dimension=64)).embed_text("x")


async def test_nomic_rejects_other_models() -> None:
    provider = NomicEmbeddingProvider(NomicEmbedder(load=HashingSentenceEncoder))
    with pytest.raises(ConfigurationError, match="only"):
        await provider.embed_query("x", model="another")
    await provider.aclose()
