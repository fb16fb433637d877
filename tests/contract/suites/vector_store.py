"""The contract suites: tests to inherit, one class for each abstract adapter.

A subclass of ``VectorStoreContract`` defines three fixtures::

    class TestMyStore(VectorStoreContract):
        @pytest.fixture
        def store(self) -> VectorStore: ...

        @pytest.fixture
        def make_collection(self) -> MakeCollection: ...  # await make_collection(dimension, metric)

        @pytest.fixture
        def make_profile_collection(self) -> MakeCollection: ...  # the same, for profiles

Expected distances are computed in plain Python; a store may round to single precision.
"""

from tests.contract.suites.hybrid_search import HybridContract
from tests.contract.suites.profiles import ProfileContract
from tests.contract.suites.replacement import ReplaceContract
from tests.contract.suites.search import MakeCollection, SearchContract

__all__ = ["MakeCollection", "SearchesContract", "VectorStoreContract"]


class SearchesContract(SearchContract, HybridContract, ProfileContract):
    """The contract of all kinds of searches, for another plan or place of a store's searches."""


class VectorStoreContract(SearchesContract, ReplaceContract):
    """The whole contract of ``vectorstore.base.VectorStore``."""
