"""Embedding models in this process, bundled or in a folder: no key, no network, no torch."""

import asyncio
import copy
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, cast

from vectorforge.embedding.base import EmbeddingProvider, ModelTraits
from vectorforge.embedding.providers import minilm
from vectorforge.errors import ConfigurationError, EmbeddingError, UnknownModelError
from vectorforge.health import ComponentHealth
from vectorforge.types import Compare, Vector

if TYPE_CHECKING:  # imported on first use, to keep a cold start without a local model short
    from vectorforge.vendors.onnx_models import EmbeddingDescription

_MINILM = "all-MiniLM-L6-v2"
_MAX_TOKENS = 256  # max_seq_length of the model's sentence_bert_config.json
_FOLDER_SETTING = "VECTORFORGE_LOCAL_EMBEDDING_PATH"
R = TypeVar("R")

_FAILED = "The local embedding model failed."
_BATCH_TIMEOUT_S = 300.0  # the first batch may wait for the model to be built on a busy machine


class InProcessEmbeddingProvider(EmbeddingProvider):
    """Base class of providers with models in this process, run in worker threads and not retried."""

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
        """True once the default model is loaded."""

    @abstractmethod
    def embed(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        """Return one vector per text, in order; called from worker threads."""

    def dimension(self, model: str | None = None) -> int | None:
        """Return the length of a model's vectors, None for unknown models."""
        return self.vector_length if model in (None, self.default_model) else None

    async def aclose(self) -> None:
        """End the threads without waiting for running batches; the next call starts new ones."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self.dimension(model) is None:
            message = (
                f'The {self.title} embedding provider has "{self.default_model}" only, not "{model[:100]}".'
            )
            raise UnknownModelError(message)
        return await self._in_thread(self.embed, texts, model)

    async def _in_thread(self, work: Callable[..., R], *arguments: Any) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._pool(), work, *arguments)

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.threads, thread_name_prefix=f"vectorforge-{self.name}")
        return self._threads

    async def _health_probe(self) -> ComponentHealth:
        """Embed one word if the model is loaded."""
        if not self.is_loaded:
            return ComponentHealth(f"embedding.{self.name}", True, "not loaded yet")
        return await super()._health_probe()


class _TextModel(Protocol):
    """Loaded model, used from worker threads only."""

    def embed(self, texts: Sequence[str]) -> list[Vector]: ...


class LocalEmbeddingProvider(InProcessEmbeddingProvider):
    """Model in a folder on onnxruntime, or all-MiniLM-L6-v2 in int8: 384 dimensions, L2 norm 1, English.

    With a folder, its model is the default, and MiniLM remains for the collections that use it. A model reads
    the first tokens of a text (MiniLM 256, about 1,200 characters) and ignores the rest. A text's vector does
    not depend on the rest of its batch. Two worker threads compute the vectors of documents and two those of
    queries, which so wait for no batch of documents. The first call of a process loads the model; the very
    first one with MiniLM builds it (3 s).

    Args:
        cache_dir: Folder of the built model; default: the user's cache folder.
        folder: Folder with a ``vectorforge.json``; None: MiniLM.
        **options: See ``EmbeddingProvider``.

    Raises:
        ConfigurationError: The folder's description is invalid, or a file is missing.
    """

    title: ClassVar[str] = "local"
    vector_length: ClassVar[int] = minilm.DIMENSION
    threads: ClassVar[int] = 2

    def __init__(self, *, cache_dir: Path | None = None, folder: Path | None = None, **options: Any) -> None:
        self._described: EmbeddingDescription | None = None
        default = _MINILM
        if folder is not None:
            from vectorforge.vendors import onnx_models as onnx

            self._described = onnx.read_description(folder, onnx.EmbeddingDescription, _FOLDER_SETTING)
            default = self._described.identity
        super().__init__(default_model=default, batch_timeout_s=_BATCH_TIMEOUT_S, **options)
        self._cache_dir, self._folder = cache_dir, folder
        self._models: dict[str, _TextModel] = {}
        self._loading = threading.Lock()
        self._queries: Self | None = None

    def provider_name(self) -> str:
        """Return "local"."""
        return "local"

    @property
    def is_loaded(self) -> bool:
        """True once the default model is loaded."""
        return self.default_model in self._models

    def dimension(self, model: str | None = None) -> int | None:
        """Return the length of a model's vectors, None for unknown models."""
        if self._described and model in (None, self.default_model):
            return self._described.dimension
        return self.vector_length if model in (None, _MINILM) else None

    def traits(self, model: str | None = None) -> ModelTraits:
        """Return the traits in the folder's description; MiniLM has no prefixes, and reads English."""
        if (described := self._described) is None or model == _MINILM:
            return ModelTraits(languages=("en",))
        return ModelTraits(described.query_prefix, described.document_prefix, described.languages)

    def embed(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        """Return one vector per text, in order.

        Raises:
            EmbeddingError: The model failed.
        """
        loaded = self._loaded(model)
        try:
            return loaded.embed(texts)
        except Exception as exc:
            # onnxruntime and tokenizers raise bare Exception and RuntimeError subclasses
            raise EmbeddingError(_FAILED) from exc

    def comparison(self) -> Compare | None:
        """Return the comparison by MiniLM's vectors of tokens, if it is the default model."""
        return self._compare if self.default_model == _MINILM else None

    async def _compare(self, query: str, sentences: Sequence[tuple[str, str]]) -> Sequence[float]:
        queries = self._for_queries()
        return await queries._in_thread(self._similarities, query, sentences)  # noqa: SLF001 - of its own class

    def _similarities(self, query: str, sentences: Sequence[tuple[str, str]]) -> Sequence[float]:
        model = cast("_MiniLM", self._loaded(_MINILM))
        try:
            return model.similarities(query, sentences)
        except Exception as exc:
            raise EmbeddingError(_FAILED) from exc

    def _for_queries(self) -> Self:
        if self._queries is None:
            self._queries = copy.copy(self)  # with the same models
            self._queries._threads = None  # noqa: SLF001 - of its own class
        return self._queries

    async def aclose(self) -> None:
        """End the threads as ``InProcessEmbeddingProvider`` does, those of queries as well."""
        await super().aclose()
        if self._queries is not None:
            await self._queries.aclose()

    async def preload(self) -> None:
        """Load the folder's model, or begin to load MiniLM, for which only queries wait.

        Raises:
            ConfigurationError: The folder's model is not the pinned one, or cannot be used.
        """
        if self._described:
            await asyncio.to_thread(self._loaded, self.default_model)
        else:
            self._for_queries()._pool().submit(self._loaded, _MINILM)  # noqa: SLF001 - of its own class

    def _loaded(self, model: str) -> _TextModel:
        with self._loading:
            if model not in self._models:
                if model == _MINILM or self._described is None or self._folder is None:
                    self._models[model] = _MiniLM(self._cache_dir or minilm.default_cache_dir())
                else:
                    self._models[model] = _FolderModel(self._folder, self._described)
        return self._models[model]


class _MiniLM:
    """Tokenizer and loaded model. Thread-safe."""

    def __init__(self, cache_dir: Path) -> None:
        from vectorforge.vendors.onnx_models import INSTALL, open_session

        try:
            from tokenizers import Tokenizer

            self._session = open_session(minilm.quantised_model(cache_dir))
        except ImportError as exc:
            raise ConfigurationError(INSTALL) from exc
        self._tokenizer = Tokenizer.from_str(minilm.tokenizer_json())
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MAX_TOKENS)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector per text, in order: 384 floats, L2 norm 1."""
        import numpy as np

        vectors: list[Vector] = []
        for encoding in self._tokenizer.encode_batch(list(texts)):
            (output,) = self._session.run(["embedding"], {"input_ids": np.array([encoding.ids])})
            vectors.append(output[0].tolist())
        return vectors

    def similarities(self, query: str, sentences: Sequence[tuple[str, str]]) -> list[float]:
        """Return how near each (heading, sentence) is to a query, -1 to 1, in order.

        A third is the cosine of the vectors of query and both texts. Two thirds are the late interaction of
        ColBERT (https://arxiv.org/abs/2004.12832): the mean over the query's tokens of the best cosine with a
        token of the sentence, which the model reads below its heading.
        """
        vector, of_query = self._vectors(query)
        found: list[float] = []
        for heading, sentence in sentences:
            before = f"{heading}: " if heading else ""
            other, of_sentence = self._vectors(before + sentence, start=len(before))
            late = (of_query @ of_sentence.T).max(axis=1, initial=0.0).mean() if len(of_query) else 0.0
            found.append(float(vector @ other + 2 * late) / 3)
        return found

    def _vectors(self, text: str, *, start: int = 0) -> "tuple[Any, Any]":
        """Return the text's vector and those of its tokens from a character on, all of L2 norm 1."""
        import numpy as np

        encoding = self._tokenizer.encode(text)
        outputs = self._session.run(["embedding", "tokens"], {"input_ids": np.array([encoding.ids])})
        # tokens of the model's own, such as [CLS], have no characters
        own = [place for place, (begin, end) in enumerate(encoding.offsets) if start <= begin < end]
        tokens = outputs[1][0][own]
        return outputs[0][0], tokens / np.linalg.norm(tokens, axis=1, keepdims=True)


class _FolderModel:
    """Loaded model of a folder, with the pooling and the norm of its description. Thread-safe."""

    def __init__(self, folder: Path, description: "EmbeddingDescription") -> None:
        from vectorforge.vendors.onnx_models import OnnxModel

        self._description = description
        shape = (None, None, description.dimension)
        self._model = OnnxModel(folder, description, _FOLDER_SETTING, output=shape)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return one vector per text, in order."""
        import numpy as np

        vectors: list[Vector] = []
        for encoding in self._model.encode(texts):
            (tokens,) = self._model.run([encoding])
            vector = tokens.mean(axis=0) if self._description.pooling == "mean" else tokens[0]
            norm = np.linalg.norm(vector) if self._description.normalize else 1.0
            vectors.append((vector / max(norm, 1e-12)).tolist())
        return vectors
