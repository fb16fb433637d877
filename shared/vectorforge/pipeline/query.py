"""Step 1 of a query, which stands where retrievers can import it."""

from vectorforge.retriever.preprocessing import MAX_QUERY_LENGTH as MAX_QUERY_LENGTH
from vectorforge.retriever.preprocessing import CleanQuery as CleanQuery
from vectorforge.retriever.preprocessing import QueryPreprocessor as QueryPreprocessor
