"""What is known of collections from earlier searches, so that the next one need not find it out again."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, isqrt
from typing import Any, Final
from uuid import UUID

from vectorforge.vectorstore.search.branches import MAX_SCAN_TUPLES

_MOST_KNOWN: Final = 10_000
_MOST_FUTILE: Final = 1_000
_EF_LEAST: Final = 80
_WIDENED: Final = 1.25
"""Of the batch that would have been enough for one question; others find fewer that match near them."""
_TUPLES_FACTOR: Final = 2
"""Vectors that an index may pass over, of the root of rows wanted times vectors. Beyond, comparing what
matches takes less time; see ``search_branches.counting``."""


@dataclass(slots=True)
class KnownCollection:
    """A collection that is searched through an index."""

    chunks: int
    partition_rows: float
    """Estimated; below 0 while the server does not know."""
    futile: set[str] = field(default_factory=set)
    """Filters, without their values, that let too little through for the index."""

    widths: dict[str, float] = field(default_factory=dict)
    """By such a filter: vectors in the index's batch for each one wanted, where it once gave too few."""

    def ef_search(self, most: int) -> int:
        """Candidates to keep in sight: an index of more vectors needs more to find as many of the nearest."""
        return min(most, max(_EF_LEAST, isqrt(int(max(self.partition_rows, self.chunks)) * 2 // 5)))

    def width(self, filter_sql: str, wanted: int) -> int:
        """Vectors that must be in the batch for ``wanted`` to match, as far as is known."""
        return ceil(self.widths.get(filter_sql, 1) * wanted)

    def was_short(self, filter_sql: str, batch: int, matching: int) -> None:
        """Take note that of a batch so few matched: the next one is to be wider."""
        if len(self.widths) >= _MOST_FUTILE:
            self.widths.clear()
        self.widths[filter_sql] = _WIDENED * batch / max(matching, 1)

    def scan_tuples(self, depth: int) -> int:
        """Vectors after which the index has taken longer than comparing what matches would."""
        return min(MAX_SCAN_TUPLES, _TUPLES_FACTOR * isqrt(depth * self.chunks))


class KnownCollections:
    """The collections that were last searched, of all tenants; knows nothing of what is in them."""

    def __init__(self) -> None:
        self._known: OrderedDict[UUID, KnownCollection] = OrderedDict()

    def get(self, collection_id: UUID, filter_sql: str) -> KnownCollection | None:
        """The collection, if its index is the way for such a filter as far as is known."""
        known = self._known.get(collection_id)
        return None if known is None or filter_sql in known.futile else known

    def found(self, collection_id: UUID, filter_sql: str, row: Mapping[str, Any], *, enough: bool) -> None:
        """Take note of what a search's statement has told.

        Args:
            collection_id: The collection.
            filter_sql: As in the statement, without values.
            row: Of the statement's result.
            enough: Whether the index gave enough.
        """
        if not row["indexed"]:
            self._known.pop(collection_id, None)
            return
        known = self._known.setdefault(collection_id, KnownCollection(0, 0))
        known.chunks, known.partition_rows = row["chunk_count"], row["partition_rows"]
        (known.futile.discard if enough else known.futile.add)(filter_sql)
        if len(known.futile) > _MOST_FUTILE:
            known.futile.clear()
        self._known.move_to_end(collection_id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
