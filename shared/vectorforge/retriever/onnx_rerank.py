"""Reranking by a cross-encoder in this process."""

import asyncio
import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from vectorforge.retriever.rerank import RerankError
from vectorforge.vendors.onnx_models import ModelDescription, OnnxModel, read_description

_BATCH = 32
"""Pairs scored at a time."""
_SETTING = "VECTORFORGE_RERANK_MODEL_PATH"


class OnnxReranker:
    """Cross-encoder in a folder, on onnxruntime in a thread of this process.

    Args:
        folder: Folder with a ``vectorforge.json``; see ``vendors.onnx_models``.

    Raises:
        ConfigurationError: The description is invalid, or a file is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._description = read_description(folder, ModelDescription, _SETTING)
        self._model: OnnxModel | None = None
        self._loading = threading.Lock()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="vectorforge-rerank")

    @property
    def identity(self) -> str:
        """Name of the model with a digest of what decides its scores."""
        return self._description.identity

    async def preload(self) -> None:
        """Check the pinned files and load the model; raise ConfigurationError if it cannot be used."""
        await asyncio.to_thread(self._loaded)

    async def scores(self, query: str, texts: Sequence[str], timeout_s: float) -> list[float]:
        """Return a score between 0 and 1 for each text; see ``Reranker.scores``.

        Loading the model before the first scores does not count as time. At the end of the time a running
        batch is stopped.
        """
        model = await asyncio.to_thread(self._loaded)
        from onnxruntime import RunOptions

        options = RunOptions()
        pairs = [(query, text) for text in texts]
        scores: list[float] = []
        try:
            async with asyncio.timeout(timeout_s):
                for start in range(0, len(pairs), _BATCH):
                    batch = pairs[start : start + _BATCH]
                    running = partial(_pair_scores, model, batch, options)
                    scores += await asyncio.get_running_loop().run_in_executor(self._threads, running)
        finally:
            options.terminate = True
        return scores

    async def aclose(self) -> None:
        """End the thread without waiting for a running batch; safe to call twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _loaded(self) -> OnnxModel:
        with self._loading:
            if self._model is None:
                self._model = OnnxModel(
                    self._folder, self._description, _SETTING, output=(None, 1), padded=True
                )
        return self._model


def _pair_scores(model: OnnxModel, pairs: Sequence[tuple[str, str]], options: Any) -> list[float]:
    """Return the sigmoid of each pair's logit; raise RerankError if the model fails."""
    try:
        logits = model.run(model.encode(pairs), options)[:, 0].tolist()
    except Exception as exc:
        # onnxruntime and tokenizers raise bare Exception and RuntimeError subclasses
        raise RerankError("The reranking model failed.") from exc
    if not all(map(math.isfinite, logits)):
        raise RerankError("The reranking model returned scores that are not finite.")
    return [(1 + math.tanh(logit / 2)) / 2 for logit in logits]
