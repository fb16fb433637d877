"""LlamaIndex with its hybrid search: a ``tsvector`` column with a GIN index.

https://developers.llamaindex.ai/python/examples/vector_stores/postgres/#hybrid-search. The store returns the
ten nearest and the ten best by words, without duplicates: up to twenty sources.
"""

from typing import Any, ClassVar

from peers import job
from peers.contestants import llamaindex


class Contestant(llamaindex.Contestant):
    """See ``job.Contestant``."""

    table = "llamaindex_hybrid_passages"
    store_options: ClassVar[dict[str, Any]] = {"hybrid_search": True, "text_search_config": "english"}
    search_options: ClassVar[dict[str, Any]] = {
        "vector_store_query_mode": "hybrid",
        "sparse_top_k": job.TOP_K,
    }
