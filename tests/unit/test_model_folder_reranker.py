"""A reranker in a folder: its order, its batches and its time."""

import logging
import math
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from tests.support.rag.chunks import make_chunk
from tests.support.vendors.onnx_folders import (
    embedding_folder,
    reranker_folder,
)
from vectorforge.config import RerankSettings
from vectorforge.errors import ConfigurationError
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.retriever.onnx_rerank import OnnxReranker
from vectorforge.retriever.rerank import RerankingRetriever


class Fixed(BaseRetriever):
    """Finds the same chunks for every query."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        found = [make_chunk(text, score=0.9 - n / 1000) for n, text in enumerate(self.texts)]
        return RetrievedChunks(found[: request.top_k])


@pytest.fixture
async def reranker(tmp_path: Path) -> AsyncIterator[OnnxReranker]:
    made = OnnxReranker(reranker_folder(tmp_path))
    yield made
    await made.aclose()
    await made.aclose()


async def found_by(
    made: OnnxReranker, texts: Sequence[str], top_k: int = 2, **options: Any
) -> RetrievedChunks:
    retriever = RerankingRetriever(Fixed(texts), made, **{"candidates": 100, "timeout_s": 60.0, **options})
    return await retriever.retrieve("when do cats sleep", uuid4(), top_k)


async def test_folder_reranker_reorders_chunks(reranker: OnnxReranker) -> None:
    found = await found_by(reranker, ["the dog barks", "the cats", "cats sleep", "sleep"])
    assert [chunk.chunk.text for chunk in found] == ["cats sleep", "the cats"]
    # relevance: sigmoid of the logit; make_chunk's title shares no word
    assert [chunk.relevance for chunk in found] == pytest.approx([1 / (1 + math.exp(-n)) for n in (2, 1)])


async def test_folder_reranker_scores_batches_of_32_in_order(reranker: OnnxReranker) -> None:
    texts = ["cats " * (number % 7) + "word " * (number % 5) for number in range(70)]
    scores = await reranker.scores("cats", texts, timeout_s=60)
    assert scores == pytest.approx([1 / (1 + math.exp(-(number % 7))) for number in range(70)])
    assert scores[40] == pytest.approx((await reranker.scores("cats", [texts[40]], timeout_s=60))[0])
    assert await reranker.scores("cats", [], timeout_s=60) == []


async def test_folder_reranker_cuts_long_chunks(tmp_path: Path) -> None:
    made = OnnxReranker(reranker_folder(tmp_path, max_tokens=16))
    scores = await made.scores("cats", ["cats", "word " * 100 + "cats"], timeout_s=60)
    assert scores == pytest.approx([1 / (1 + math.exp(-1)), 0.5])
    await made.aclose()


async def test_folder_reranker_over_its_time_leaves_search_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = OnnxReranker(reranker_folder(tmp_path, hangs=True))
    await made.preload()
    started = time.perf_counter()
    texts = ["the dog barks", "the cats", "cats sleep"]
    found = await found_by(made, texts, timeout_s=0.2)
    assert 0.2 <= time.perf_counter() - started < 2
    assert [chunk.chunk.text for chunk in found] == texts[:2]
    assert [chunk.relevance for chunk in found] == [None, None]
    assert caplog.messages == ["The chunks were not reranked: TimeoutError"]
    await made.aclose()


def test_folder_reranker_over_its_time_stops_computing(tmp_path: Path) -> None:
    folder = reranker_folder(tmp_path, hangs=True)
    program = (
        "import asyncio; from pathlib import Path\n"
        "from vectorforge.retriever.onnx_rerank import OnnxReranker\n"
        f"try: asyncio.run(OnnxReranker(Path({str(folder)!r})).scores('cats', ['cats'], 0.1))\n"
        "except TimeoutError: print('late')"
    )
    # Python waits for the thread at its end.
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("late\n", "")


async def test_changed_reranker_is_rejected_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = reranker_folder(tmp_path)
    made = OnnxReranker(folder)
    with (folder / "model.onnx").open("ab") as file:
        file.write(b" ")
    with pytest.raises(
        ConfigurationError, match=r"VECTORFORGE_RERANK_MODEL_PATH: model\.onnx has the sha256"
    ):
        await made.preload()
    with caplog.at_level(logging.WARNING):
        found = await found_by(made, ["the dog", "cats sleep"])
    assert [chunk.chunk.text for chunk in found] == ["the dog", "cats sleep"]
    assert "The chunks were not reranked: VECTORFORGE_RERANK_MODEL_PATH: model.onnx has" in caplog.text
    await made.aclose()


async def test_reranker_with_several_labels_is_rejected(tmp_path: Path) -> None:
    made = OnnxReranker(reranker_folder(tmp_path, labels=2))
    with pytest.raises(ConfigurationError, match=r"output of the shape \[None, 1\]"):
        await made.preload()
    with pytest.raises(ConfigurationError, match=r"RERANK_MODEL_PATH: vectorforge\.json: dimension"):
        OnnxReranker(embedding_folder(tmp_path))


def test_reranker_settings_have_one_reranker_and_its_time(tmp_path: Path) -> None:
    assert RerankSettings().timeout_s == 2.0
    assert RerankSettings(rerank_model_path=tmp_path).timeout_s == 0.2
    assert RerankSettings(rerank_model_path=tmp_path, rerank_timeout_s=1).timeout_s == 1
    with pytest.raises(ValidationError, match="not both"):
        RerankSettings(rerank_model_path=tmp_path, rerank_url="http://x/rerank", rerank_format="tei")
