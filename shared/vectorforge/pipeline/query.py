"""Step 1 of a query, which stands where retrievers can import it."""

from vectorforge.retriever.base import MAX_QUERY_LENGTH as MAX_QUERY_LENGTH
from vectorforge.retriever.base import CleanQuery as CleanQuery
from vectorforge.retriever.base import QueryPreprocessor as QueryPreprocessor
