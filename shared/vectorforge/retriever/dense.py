"""Step 2 of a query: nearest vectors."""

from collections.abc import Mapping
from typing import ClassVar

from vectorforge.errors import InvalidInputError
from vectorforge.retriever.hybrid import HybridRetriever
from vectorforge.types import Collection, SearchMode


class DenseRetriever(HybridRetriever):
    """Embeds the question and takes the nearest passages, whatever the collection's mode."""

    tags: ClassVar[Mapping[str, str]] = {"retriever_type": "dense"}

    def _mode(self, collection: Collection, asked: SearchMode | None) -> SearchMode:
        if asked not in (None, SearchMode.DENSE):
            raise InvalidInputError("This retriever searches by vectors only.", field="search_mode")
        return SearchMode.DENSE
