"""Step 2 of a query: search by vectors alone."""

from collections.abc import Callable
from dataclasses import replace

from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import InvalidInputError
from vectorforge.retriever.base import BaseRetriever, RetrievalRequest, RetrievedChunks
from vectorforge.retriever.hybrid import CollectionFinder, HybridRetriever
from vectorforge.telemetry import MetricsCollector
from vectorforge.types import SearchMode
from vectorforge.vectorstore.base import VectorStore


class DenseRetriever(BaseRetriever):
    """Finds the chunks with the nearest vectors, whatever the collection's search mode.

    Args:
        embedding_registry: Providers by name.
        vector_store: Bound to one tenant.
        collection_repo: Bound to the same tenant.
        preprocess: Cleans the query; default: ``QueryPreprocessor().preprocess``.
        metrics: Collector of ``retriever.*``.
        max_top_k: Largest ``top_k`` accepted.
    """

    def __init__(
        self,
        embedding_registry: EmbeddingProviderRegistry,
        vector_store: VectorStore,
        collection_repo: CollectionFinder,
        *,
        preprocess: Callable[[str], str] | None = None,
        metrics: MetricsCollector | None = None,
        max_top_k: int = 100,
    ) -> None:
        self._search = HybridRetriever(
            embedding_registry,
            vector_store,
            collection_repo,
            preprocess=preprocess,
            metrics=metrics,
            max_top_k=max_top_k,
            retriever_type="dense",
        )
        self.metrics = self._search.metrics

    async def find(self, request: RetrievalRequest) -> RetrievedChunks:
        """Search by vectors; see ``BaseRetriever.retrieve``.

        Raises:
            InvalidInputError: The request names another mode.
        """
        if request.search_mode not in (None, SearchMode.DENSE):
            raise InvalidInputError("This retriever searches by vectors only.", field="search_mode")
        return await self._search.find(replace(request, search_mode=SearchMode.DENSE))
