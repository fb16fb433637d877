"""Nomic Embed on this machine, through sentence-transformers and torch."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from vectorforge.embedding.base import ModelTraits
from vectorforge.embedding.providers.local import InProcessEmbeddingProvider
from vectorforge.errors import ConfigurationError, EmbeddingError
from vectorforge.types import Vector

MODEL = "nomic-ai/nomic-embed-text-v1.5"
DIMENSION = 768
"""Dimension of the published model; https://huggingface.co/nomic-ai/nomic-embed-text-v1.5"""
HOW_TO_INSTALL = "pip install sentence-transformers einops"

_BATCH_TIMEOUT_S = 900.0  # the first batch waits for 550 MB to be downloaded


class SentenceEncoder(Protocol):
    """Used part of ``sentence_transformers.SentenceTransformer``."""

    def encode(self, sentences: list[str], *, show_progress_bar: bool, normalize_embeddings: bool) -> Any:
        """Return a NumPy array with one row per text, in order."""
        ...


class NomicEmbedder:
    """Blocking model; thread-safe, one thread at a time.

    The first text imports, downloads and loads it. Loading runs the model's own Python code from Hugging Face
    (``trust_remote_code``), which the model requires.

    Args:
        model_name: Name on Hugging Face, or a folder.
        load: Loads the model of this name; default: sentence-transformers.
    """

    dimension = DIMENSION
    """Length of every vector."""

    def __init__(
        self, model_name: str = MODEL, *, load: Callable[[str], SentenceEncoder] | None = None
    ) -> None:
        self.model_name = model_name
        self._load = load or _load
        self._encoder: SentenceEncoder | None = None
        self._lock = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        """True once the model is loaded."""
        return self._encoder is not None

    def embed_text(self, text: str) -> list[float]:
        """Return the vector of one text; arguments and errors as ``embed_batch``."""
        return self.embed_batch([text])[0]

    def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order: 768 floats, L2 norm 1. No progress bar.

        Args:
            texts: Embedded unchanged: they must start with the prefix that the model was trained with
                ("search_query: " or "search_document: ").

        Raises:
            ConfigurationError: sentence-transformers or einops is not installed.
            EmbeddingError: The model could not be loaded, failed, or has another dimension.
        """
        if not texts:
            return []
        with self._lock:
            rows = self._encode(list(texts))
        if any(len(row) != DIMENSION for row in rows):
            raise EmbeddingError(f"The model {self.model_name} does not have {DIMENSION} dimensions.")
        return rows

    def _encode(self, texts: list[str]) -> list[list[float]]:
        if self._encoder is None:
            try:
                self._encoder = self._load(self.model_name)
            except ImportError as exc:
                raise ConfigurationError(f"The Nomic embedder needs packages: {HOW_TO_INSTALL}") from exc
            except Exception as exc:
                # The hub's client, torch and the model's own code raise any exception.
                message = f"The model {self.model_name} could not be loaded from Hugging Face or its cache."
                raise EmbeddingError(message) from exc
        try:
            rows = self._encoder.encode(texts, show_progress_bar=False, normalize_embeddings=True)
            return [[float(value) for value in row] for row in rows]
        except Exception as exc:
            raise EmbeddingError(f"The model {self.model_name} failed.") from exc


class NomicEmbeddingProvider(InProcessEmbeddingProvider):
    """``NomicEmbedder`` in a worker thread, with the model's prefixes for new collections.

    Args:
        embedder: The model; default: Nomic Embed v1.5.
        **options: See ``EmbeddingProvider``.
    """

    title: ClassVar[str] = "Nomic"
    vector_length: ClassVar[int] = DIMENSION

    def __init__(self, embedder: NomicEmbedder | None = None, **options: Any) -> None:
        self._embedder = embedder or NomicEmbedder()
        super().__init__(default_model=self._embedder.model_name, batch_timeout_s=_BATCH_TIMEOUT_S, **options)

    def provider_name(self) -> str:
        """Return "nomic"."""
        return "nomic"

    @property
    def is_loaded(self) -> bool:
        """True once the model is loaded."""
        return self._embedder.is_loaded

    def traits(self, model: str | None = None) -> ModelTraits:
        """Return the prefixes and the language that the model was trained with."""
        return ModelTraits("search_query: ", "search_document: ", ("en",))

    def embed(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        """Return one vector per text, in order: 768 floats, L2 norm 1."""
        return self._embedder.embed_batch(texts)


def _load(model_name: str) -> SentenceEncoder:
    from sentence_transformers import SentenceTransformer

    encoder: SentenceEncoder = SentenceTransformer(model_name, trust_remote_code=True)
    return encoder
