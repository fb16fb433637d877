"""Every vector store keeps the same promises."""

from uuid import UUID, uuid4

import pytest

from vectorforge.testing.contracts import MakeCollection, VectorStoreContract
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.base import VectorStore
from vectorforge.vectorstore.memory import InMemoryVectorStore


# C-003 C15
class TestInMemoryVectorStore(VectorStoreContract):
    @pytest.fixture
    def store(self) -> VectorStore:
        return InMemoryVectorStore()

    @pytest.fixture
    def make_collection(self) -> MakeCollection:
        async def make(_dimension: int, _metric: DistanceMetric) -> UUID:
            return uuid4()

        return make
