"""LangChain with its hybrid search: a ``tsvector`` column with a GIN index, and reciprocal rank fusion.

https://docs.langchain.com/oss/python/integrations/vectorstores/pgvectorstore#hybrid-search-with-pgvectorstore.
"""

from typing import Any

from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig, reciprocal_rank_fusion
from langchain_postgres.v2.indexes import HNSWIndex

from peers import job
from peers.contestants import langchain


class Contestant(langchain.Contestant):
    """See ``job.Contestant``."""

    table = "langchain_hybrid_passages"

    def search_options(self, question: str) -> dict[str, Any]:
        # One of its own for each search: the store writes the first query into the one it was made with.
        return {"hybrid_search_config": self._config(question)}

    def store_options(self) -> dict[str, Any]:
        return {"hybrid_search_config": self._config()}

    async def index(self) -> None:
        store = await self._stored()
        await store.aapply_vector_index(HNSWIndex())
        await store.aapply_hybrid_search_index()

    def _config(self, question: str = "") -> HybridSearchConfig:
        return HybridSearchConfig(
            tsv_column="content_tsv",
            tsv_lang="pg_catalog.english",
            fts_query=question,
            fusion_function=reciprocal_rank_fusion,
            fusion_function_parameters={"rrf_k": 60, "fetch_top_k": job.TOP_K},
            primary_top_k=job.TOP_K,
            secondary_top_k=job.TOP_K,
            index_name=f"{self._table}_words",
            index_type="GIN",
        )
