"""Models in folders: pinned files, pooling, prefixes and languages of an embedder."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from pydantic import SecretStr

from tests.support.vendors.onnx_folders import (
    DIMENSION,
    TABLE,
    VOCABULARY,
    embedding_folder,
    embedding_graph,
    reranker_folder,
    write_folder,
)
from vectorforge.bootstrap import Application
from vectorforge.config import DatabaseSettings, EmbeddingSettings, RerankSettings, VectorForgeConfig
from vectorforge.embedding.base import ModelTraits
from vectorforge.embedding.providers.local import LocalEmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError
from vectorforge.types import Collection, DistanceMetric

SETTING = "VECTORFORGE_LOCAL_EMBEDDING_PATH"
BUNDLED = "all-MiniLM-L6-v2"


def describe(folder: Path, **changes: Any) -> Path:
    """Change a folder's description; None removes a field."""
    file = folder / "vectorforge.json"
    fields = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))
    return folder


def provider(folder: Path, **described: Any) -> LocalEmbeddingProvider:
    return LocalEmbeddingProvider(folder=embedding_folder(folder, **described))


async def vector_of(folder: Path, text: str, **described: Any) -> list[float]:
    made = provider(folder, **described)
    try:
        return await made.embed_query(text)
    finally:
        await made.aclose()


def collection_of(provider_name: str, model: str) -> Collection:
    return Collection(uuid4(), "handbook", provider_name, model, DIMENSION, DistanceMetric.COSINE)


def discovered(folder: Path) -> EmbeddingProviderRegistry:
    registry = EmbeddingProviderRegistry()
    registry.auto_discover(VectorForgeConfig(embedding=EmbeddingSettings(local_embedding_path=folder)))
    return registry


# --- embedding


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
async def test_folder_vector_has_pooling_and_norm_of_description(
    tmp_path: Path, pooling: str, normalize: bool
) -> None:
    words = TABLE[[VOCABULARY[word] for word in ("[CLS]", "the", "invoice", "[SEP]")]]
    tokens = words + words.mean(axis=0)
    expected = tokens.mean(axis=0) if pooling == "mean" else tokens[0]
    if normalize:
        expected = expected / np.linalg.norm(expected)
    assert np.linalg.norm(expected) == pytest.approx(1) or not normalize
    vector = await vector_of(tmp_path, "The invoice", pooling=pooling, normalize=normalize)
    assert vector == pytest.approx(expected.tolist(), abs=1e-5)


async def test_text_beyond_max_tokens_of_folder_is_cut(tmp_path: Path) -> None:
    short, long = "word " * 6, "word " * 6 + "good bad"  # with two special tokens: 8 and 10
    assert await vector_of(tmp_path, short, max_tokens=8) == await vector_of(tmp_path, long, max_tokens=8)
    assert await vector_of(tmp_path, short, max_tokens=9) != await vector_of(tmp_path, long, max_tokens=9)


async def test_folder_model_is_default_and_bundled_model_remains(tmp_path: Path) -> None:
    registry = discovered(embedding_folder(tmp_path))
    local = registry.for_tenant("acme").get_default()
    assert local.name == "local"
    assert local.default_model.startswith("tiny@")
    assert (local.dimension(), local.dimension(BUNDLED), local.dimension("gpt")) == (DIMENSION, 384, None)
    assert local.comparison() is None  # weighted for the bundled model
    assert local.traits() == ModelTraits("query: ", "passage: ", ("en", "de"))
    assert local.traits(BUNDLED) == ModelTraits("", "", ("en",))
    assert len(await local.embed_query("cats")) == DIMENSION
    assert len(await local.embed_query("cats", model=BUNDLED)) == 384
    with pytest.raises(ConfigurationError, match='has "tiny@'):
        await local.embed_query("cats", model="tiny@000000000000")
    await registry.aclose()


def test_folder_model_name_differs_with_everything_that_decides_vectors(tmp_path: Path) -> None:
    def name(**changes: Any) -> str:
        return LocalEmbeddingProvider(folder=describe(folder, **changes)).default_model

    folder = embedding_folder(tmp_path)
    first, pinned = name(), json.loads((folder / "vectorforge.json").read_text())["sha256"]
    assert name(languages=["fr"], query_prefix="") == first  # collections store their prefixes
    changes: list[dict[str, Any]] = [
        {"name": "other"},
        {"max_tokens": 16},
        {"pooling": "cls"},
        {"normalize": False},
        {"sha256": {**pinned, "model.onnx": "0" * 64}},
        {"sha256": {**pinned, "tokenizer.json": "0" * 64}},
    ]
    fields = json.loads((folder / "vectorforge.json").read_text())
    names = [
        name(**{**fields, "pooling": "mean", "normalize": True, "max_tokens": 512, **c}) for c in changes
    ]
    assert len({first, *names}) == 1 + len(changes)


async def test_folder_with_changed_file_is_rejected_before_its_first_vector(tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        made = provider(tmp_path)
        with (tmp_path / name).open("ab") as file:
            file.write(b" ")
        message = (
            rf"{SETTING}: {name} has the sha256 [0-9a-f]{{64}}, not [0-9a-f]{{64}} as in vectorforge.json"
        )
        with pytest.raises(ConfigurationError, match=message):
            await made.preload()
        with pytest.raises(ConfigurationError, match=message):
            await made.embed_query("cats")
        await made.aclose()


@pytest.mark.parametrize(
    "name",
    ["../model.onnx", "/model.onnx", "a/../../model.onnx", "..", "a\\b", "a//b", "C:model.onnx", "", "a\0"],
)
def test_file_name_that_leaves_the_folder_is_rejected(tmp_path: Path, name: str) -> None:
    folder = embedding_folder(tmp_path / "models" / "tiny")
    shutil.copy(folder / "model.onnx", tmp_path / "models" / "model.onnx")
    pinned = json.loads((folder / "vectorforge.json").read_text())["sha256"]
    for changes in (
        {"model": name, "sha256": {**pinned, name: pinned["model.onnx"]}},
        {"sha256": {**pinned, name: pinned["model.onnx"]}},
        {"tokenizer": name},
    ):
        describe(embedding_folder(folder), **changes)
        with pytest.raises(ConfigurationError, match="must be a path in the folder"):
            LocalEmbeddingProvider(folder=folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimension": None}, "dimension: Field required"),
        ({"sha256": {"model.onnx": "0" * 64}}, "sha256 must have an entry for tokenizer.json"),
        ({"sha256": {"model.onnx": "0" * 63}}, "sha256: model.onnx: "),
        ({"pooling": "max"}, "pooling: "),
        ({"prefix": "x"}, "prefix: Extra inputs"),
        ({"name": "a/b"}, "name: "),
        ({"languages": ["English"]}, "languages: "),
    ],
)
def test_invalid_description_error_names_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = describe(embedding_folder(tmp_path), **changes)
    with pytest.raises(ConfigurationError, match=f"{SETTING}: vectorforge.json: .*{message}"):
        LocalEmbeddingProvider(folder=folder)


def test_folder_with_missing_or_unpinned_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"vectorforge\.json cannot be read"):
        discovered(tmp_path)
    (tmp_path / "vectorforge.json").write_text("{")
    with pytest.raises(ConfigurationError, match="Invalid JSON"):
        discovered(tmp_path)
    (embedding_folder(tmp_path) / "model.onnx_data").write_bytes(b"weights")
    with pytest.raises(ConfigurationError, match=r"sha256 must have an entry for model\.onnx_data"):
        discovered(tmp_path)
    (tmp_path / "model.onnx_data").unlink()
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ConfigurationError, match=r"the folder has no file tokenizer\.json"):
        discovered(tmp_path)


async def test_folder_model_that_does_not_fit_is_rejected(tmp_path: Path) -> None:
    graph = embedding_graph()
    graph.graph.input[1].name = "pixel_values"
    for folder, message in (
        (
            embedding_folder(tmp_path / "dimension", dimension=8),
            r"output of the shape \[None, None, 8\]; it has",
        ),
        (write_folder(tmp_path / "inputs", graph, dimension=DIMENSION), "it has input_ids, pixel_values"),
        (reranker_folder(tmp_path / "rank", dimension=DIMENSION), "it has input_ids"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            await LocalEmbeddingProvider(folder=folder).preload()
    folder = embedding_folder(tmp_path / "damaged")
    (folder / "model.onnx").write_bytes(b"not a graph")
    pinned = json.loads((folder / "vectorforge.json").read_text())["sha256"]
    describe(folder, sha256={**pinned, "model.onnx": hashlib.sha256(b"not a graph").hexdigest()})
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        await LocalEmbeddingProvider(folder=folder).preload()


def test_language_note_names_languages_that_the_model_was_not_trained_with(tmp_path: Path) -> None:
    registry = discovered(embedding_folder(tmp_path))
    folder_model = registry.get_default().default_model
    english = collection_of("local", BUNDLED)
    note = registry.language_note(english, ["en", "zh", "de", "de", None])
    assert note is not None
    assert note.startswith(
        '"handbook" has documents in de, zh, which are found by words but hardly by meaning: '
        "all-MiniLM-L6-v2 was trained on en. Set VECTORFORGE_LOCAL_EMBEDDING_PATH"
    )
    assert registry.language_note(english, ["en", None]) is None
    both = collection_of("local", folder_model)
    assert registry.language_note(both, ["en", "de"]) is None
    assert "in fr, which are found" in (registry.for_tenant("acme").language_note(both, ["en", "fr"]) or "")
    assert registry.language_note(collection_of("gone", BUNDLED), ["fr"]) is None
    silent = discovered(describe(tmp_path, languages=[]))
    assert silent.language_note(both, ["fr"]) is None


async def test_server_with_changed_models_does_not_start(tmp_path: Path) -> None:
    folders = {
        "embedding": embedding_folder(tmp_path / "embedding"),
        "rerank": reranker_folder(tmp_path / "reranker"),
    }

    def build() -> Application:
        url = SecretStr("postgresql://vectorforge_app@127.0.0.1:1/db")
        return Application.build(
            VectorForgeConfig(
                database=DatabaseSettings(database_url=url),
                embedding=EmbeddingSettings(local_embedding_path=folders["embedding"]),
                rerank=RerankSettings(rerank_model_path=folders["rerank"]),
            )
        )

    application = build()
    await application.preload()
    describe(folders["rerank"], max_tokens=64)
    assert build().shared.settings_digest != application.shared.settings_digest  # cached answers expire
    for name in ("rerank", "embedding"):
        (folders[name] / "tokenizer.json").write_text("{}")
        with pytest.raises(ConfigurationError, match=rf"{name.upper()}_.*: tokenizer\.json has the sha256"):
            await build().preload()
    await application.shared.close()
