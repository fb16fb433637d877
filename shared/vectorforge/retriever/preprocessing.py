"""Step 1 of a query: clean the question."""

import logging
import re
from dataclasses import dataclass

from vectorforge.errors import InvalidInputError

logger = logging.getLogger(__name__)

MAX_QUERY_LENGTH = 10_000
"""Characters of a question; what is longer is cut."""

_SPACES = re.compile(r" {2,}")


@dataclass(frozen=True, slots=True)
class CleanQuery:
    """A question ready to be searched for."""

    text: str
    truncated: bool
    """Whether its end was cut off."""


class QueryPreprocessor:
    """Trims, collapses runs of spaces (line breaks and tabs stay) and bounds the length. Idempotent."""

    def __init__(self, max_query_length: int = MAX_QUERY_LENGTH) -> None:
        self._max_query_length = max_query_length

    def preprocess(self, query: str) -> str:
        """The cleaned question.

        Raises:
            InvalidInputError: Nothing is left; it is a ``ValueError`` too.
        """
        return self.clean(query).text

    def clean(self, query: str) -> CleanQuery:
        """The cleaned question and whether it was cut, which is also logged as a warning.

        Raises:
            InvalidInputError: Nothing is left.
        """
        # PostgreSQL cannot store NUL, and a lone surrogate cannot be encoded: both come from broken clients.
        query = query.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
        query = _SPACES.sub(" ", query.strip())
        if not query:
            raise InvalidInputError("Query cannot be empty", field="query")
        limit = self._max_query_length
        if len(query) <= limit:
            return CleanQuery(query, truncated=False)
        logger.warning(f"Query truncated from {len(query)} to {limit} chars")  # exact text: A-028
        return CleanQuery(query[:limit].rstrip(), truncated=True)
