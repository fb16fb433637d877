"""Order of a search's chunks: reranking by a cross-encoder model, and maximal marginal relevance.

The latter chooses chunks that answer a query and differ from one another: Carbonell and Goldstein, "The Use
of MMR, Diversity-Based Reranking for Reordering Documents and Producing Summaries", SIGIR 1998,
https://doi.org/10.1145/290941.291025.
"""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from operator import mul
from typing import Any, Final, Literal, Protocol, TypeAlias

from vectorforge.deadline import Deadline
from vectorforge.errors import (
    ConfigurationError,
    DeadlineExceededError,
    InvalidInputError,
    RetrievalError,
    VectorForgeError,
)
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.types import RetrievedChunk, Vector
from vectorforge.vendors.credentials import Credentials, FixedCredentials
from vectorforge.vendors.http import VendorClient
from vectorforge.vendors.response import VendorConnectionError, VendorStatusError, VendorTimeoutError

logger = logging.getLogger(__name__)


RerankFormat: TypeAlias = Literal["cohere", "tei"]

_MOST_TEXTS: Mapping[RerankFormat, int] = {"cohere": 1_000, "tei": 32}
"""Texts of one request. https://docs.cohere.com/reference/rerank; TEI: ``--max-client-batch-size``."""


class Reranker(Protocol):
    """Scores texts by how well they answer a query."""

    async def scores(self, query: str, texts: Sequence[str], timeout_s: float) -> list[float]:
        """Return one finite score per text, in the order of the texts; higher is better on the model's scale.

        Raises:
            VectorForgeError: The reranker failed.
            TimeoutError: It did not answer in time.
        """
        ...


class RerankError(RetrievalError):
    """The reranker failed; the order of the search remains."""


class HttpReranker:
    """Reranker behind HTTP: Cohere's API and compatible ones, or Hugging Face's TEI.

    https://docs.cohere.com/reference/rerank
    https://huggingface.github.io/text-embeddings-inference/#/Text%20Embeddings%20Inference/rerank

    Args:
        url: URL with its path: ``https://api.cohere.com/v2/rerank``, ``http://host:8080/rerank``.
        shape: Format of request and response.
        model: Model in Cohere's requests; TEI serves one.
        api_key: Bearer token, or None.
    """

    def __init__(
        self, url: str, *, shape: RerankFormat, model: str | None = None, api_key: Credentials | None = None
    ) -> None:
        self._url = url
        self._shape: RerankFormat = shape
        self._model = model
        self._client = VendorClient(api_key or FixedCredentials(""))

    async def scores(self, query: str, texts: Sequence[str], timeout_s: float) -> list[float]:
        """See ``Reranker.scores``; all batches are sent concurrently."""
        size = _MOST_TEXTS[self._shape]
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        async with asyncio.timeout(timeout_s), asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._batch(query, batch)) for batch in batches]
        return [score for task in tasks for score in task.result()]

    async def aclose(self) -> None:
        """Close connections; safe to call twice."""
        await self._client.aclose()

    async def _batch(self, query: str, texts: Sequence[str]) -> list[float]:
        # "from None": the vendor's error may contain the key, or a URL with one
        try:
            async with aclosing(await self._client.post(self._url, self._body(query, texts))) as response:
                return read_scores(await response.read(), len(texts))
        except VendorStatusError as exc:
            raise RerankError(f"The reranker answered with status {exc.status}.") from None
        except (VendorConnectionError, VendorTimeoutError, ConnectionError) as exc:
            raise RerankError(f"The reranker is unreachable: {type(exc).__name__}.") from None
        except ValueError:
            raise RerankError("The reranker's answer is not in the expected form.") from None

    def _body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self._shape == "tei":
            return {"query": query, "texts": list(texts), "truncate": True}
        named = {} if self._model is None else {"model": self._model}
        return {**named, "query": query, "documents": list(texts), "top_n": len(texts)}


class RerankingRetriever(BaseRetriever):
    """Retrieves more chunks than requested and returns those that a reranker scores best.

    If the reranker fails, is too slow or returns invalid scores, the order of the search remains, and
    ``RetrievedChunks.rerank_error`` and the log have the reason.

    Args:
        retriever: Finds the chunks; ``min_score`` applies to its score.
        reranker: Scores them.
        candidates: Chunks to score; at least the requested number.
        max_top_k: Largest ``top_k`` of the retriever.
        timeout_s: Time limit of the reranker, in seconds.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        reranker: Reranker,
        *,
        candidates: int = 32,
        max_top_k: int = 100,
        timeout_s: float = 2.0,
    ) -> None:
        self._retriever = retriever
        self._reranker = reranker
        self._candidates = candidates
        self._max_top_k = max_top_k
        self._timeout_s = timeout_s

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        """Search and rerank; ``relevance`` is the reranker's score."""
        widened = self._widened(request)
        if request.mmr_lambda is not None:
            return await find_diverse(self.find, request, widened.top_k)
        return await self.rerank(request, await self._retriever.find(widened))

    async def find_all(self, requests: Sequence[RetrievalRequest]) -> list[RetrievedChunks]:
        """Search for all at once; ``rerank`` follows."""
        return await self._retriever.find_all([self._widened(request) for request in requests])

    async def rerank(self, request: RetrievalRequest, chunks: RetrievedChunks) -> RetrievedChunks:
        """Rerank the chunks of one or several searches."""
        del chunks[max(request.top_k, self._max_top_k) :]
        try:
            chunks[:] = await self._reranked(request.query, chunks, request.deadline)
        except DeadlineExceededError:
            raise
        except (VectorForgeError, TimeoutError, ExceptionGroup) as exc:
            chunks.rerank_error = RerankError(_reason(exc))
            logger.warning("The chunks were not reranked: %s", chunks.rerank_error)
        del chunks[request.candidates or request.top_k :]
        return chunks

    def _widened(self, request: RetrievalRequest) -> RetrievalRequest:
        top_k = request.top_k
        wanted = max(top_k, min(self._candidates, self._max_top_k)) if top_k >= 1 else top_k
        return replace(request, top_k=wanted)

    async def _reranked(
        self, query: str, chunks: Sequence[RetrievedChunk], deadline: Deadline | None
    ) -> Sequence[RetrievedChunk]:
        if len(chunks) < 2:
            return chunks
        texts = [_text_of(chunk) for chunk in chunks]
        timeout_s = self._timeout_s if deadline is None else deadline.clamp(self._timeout_s)
        scores = await self._reranker.scores(query, texts, timeout_s)
        scored = [replace(chunk, relevance=score) for chunk, score in zip(chunks, scores, strict=True)]
        return sorted(scored, key=lambda chunk: -(chunk.relevance or 0.0))  # stable: equal ones stay


def _text_of(chunk: RetrievedChunk) -> str:
    return f"{chunk.document_title}\n{chunk.chunk.text}" if chunk.document_title else chunk.chunk.text


def _reason(exc: Exception) -> str:
    """Return the reason of a failure; errors of another kind in a group are raised."""
    if isinstance(exc, ExceptionGroup):
        _, others = exc.split((VectorForgeError, TimeoutError))
        if others is not None:
            raise others from None
        exc = exc.exceptions[0]
    return str(exc) if isinstance(exc, RerankError | ConfigurationError) else type(exc).__name__


def read_scores(body: bytes, count: int) -> list[float]:
    """Return the scores of a reranker's response, in the order of the texts.

    Args:
        body: ``[{"index": 0, "score": 0.5}]`` (TEI), or objects with a ``relevance_score`` in ``results``.
        count: Number of texts.

    Raises:
        ValueError: It is not JSON, or does not have one finite number for each text.
    """
    try:
        answer = json.loads(body)
        items = answer["results"] if isinstance(answer, dict) else answer
        by_index: dict[int, float] = {}
        for item in items:
            score = item["relevance_score"] if "relevance_score" in item else item["score"]
            by_index[item["index"]] = float(score)
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as exc:
        raise ValueError("not scores") from exc
    if by_index.keys() != set(range(count)) or not all(map(math.isfinite, by_index.values())):
        raise ValueError("not one finite score for each text")
    return [by_index[index] for index in range(count)]


MMR_CANDIDATES: Final = 70
"""Chunks to choose from, as many as each leg of a hybrid search has."""


def candidate_count(top_k: int, max_top_k: int, mmr_lambda: object) -> int:
    """Return the number of chunks among which ``top_k`` are chosen.

    Raises:
        InvalidInputError: ``mmr_lambda`` is not between 0 and 1.
    """
    if not isinstance(mmr_lambda, int | float) or not 0 <= mmr_lambda <= 1:
        raise InvalidInputError("mmr_lambda must be between 0 and 1.", field="mmr_lambda")
    return max(top_k, min(MMR_CANDIDATES, max_top_k))


async def find_diverse(
    find: Callable[[RetrievalRequest], Awaitable[RetrievedChunks]], request: RetrievalRequest, most: int
) -> RetrievedChunks:
    """Run a search that has ``mmr_lambda``; ``find`` returns at most ``most`` candidates."""
    mmr_lambda = request.mmr_lambda or 0.0
    count = candidate_count(request.top_k, most, mmr_lambda)
    chunks = await find(replace(request, mmr_lambda=None, candidates=count))
    chunks[:] = [chunks[place] for place in mmr_order(chunks, request.top_k, mmr_lambda)]
    return chunks


def mmr_order(chunks: Sequence[RetrievedChunk], top_k: int, mmr_lambda: float) -> list[int]:
    """Return the places of at most ``top_k`` chunks, in the order in which they are chosen.

    Each time the chunk with the largest ``lambda * relevance - (1 - lambda) * similarity`` is chosen, the
    better ranked of equal ones. Its similarity is the largest cosine to a chosen chunk.

    Args:
        chunks: Candidates with their vectors, best first; one without a vector resembles none.
        top_k: Number of chunks.
        mmr_lambda: 0 to 1; 1 retains the order.
    """
    # Scaled to 0..1 over the candidates: a reranker's scores may have any range.
    values = [chunk.score if chunk.relevance is None else chunk.relevance for chunk in chunks]
    lowest, width = min(values, default=0.0), max(values, default=0.0) - min(values, default=0.0)
    relevance = [(value - lowest) / width if width else 1.0 for value in values]
    units = [_unit(chunk.vector) for chunk in chunks]
    similarity = [-1.0] * len(chunks)
    rest, chosen = list(range(len(chunks))), list[int]()
    while rest and len(chosen) < top_k:
        best = max(rest, key=lambda at: mmr_lambda * relevance[at] - (1 - mmr_lambda) * similarity[at])
        rest.remove(best)
        chosen.append(best)
        for at in rest:
            similarity[at] = max(similarity[at], sum(map(mul, units[at], units[best])))
    return chosen


def _unit(vector: Vector | None) -> list[float]:
    """Return the vector with length 1; empty without one."""
    length = math.hypot(*vector or ())
    return [number / length for number in vector or ()] if length else []
