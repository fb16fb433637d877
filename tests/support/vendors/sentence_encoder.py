"""A stand-in for ``sentence_transformers.SentenceTransformer``: same call, same arrays, no model."""

from typing import Any

from tests.support.vendors.hashing_embedder import hashed_vector


class HashingSentenceEncoder:
    """Encodes by ``hashed_vector``.

    Args:
        model_name: Name of the model, as for the real class.
        dimension: Length of the vectors.
    """

    def __init__(self, model_name: str, *, dimension: int = 768) -> None:
        self.model_name = model_name
        self._dimension = dimension
        self.sentences: list[str] = []
        """Every text encoded so far, in order."""

    def encode(self, sentences: list[str], *, show_progress_bar: bool, normalize_embeddings: bool) -> Any:
        """Return a float32 array with a row per text; normalized only on request."""
        import numpy as np

        self.sentences.extend(sentences)
        rows = [hashed_vector(sentence, self._dimension) for sentence in sentences]
        return np.array(rows, dtype=np.float32) * (1.0 if normalize_embeddings else 3.0)
