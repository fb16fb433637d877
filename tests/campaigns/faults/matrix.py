"""All rows of the fault matrix: those that the campaign runs, and what is said of the others."""

from collections.abc import Mapping

from tests.campaigns.faults.database_faults import DATABASE_FAULTS
from tests.campaigns.faults.embedder_faults import EMBEDDER_FAULTS
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.function_faults import FUNCTION_FAULTS
from tests.campaigns.faults.ingestion_faults import INGESTION_FAULTS
from tests.campaigns.faults.log_faults import LOG_FAULTS
from tests.campaigns.faults.process_faults import PROCESS_FAULTS
from tests.campaigns.faults.repeat_faults import REPEAT_FAULTS
from tests.campaigns.faults.vendor_faults import VENDOR_FAULTS

_ALL = (
    *VENDOR_FAULTS,
    *EMBEDDER_FAULTS,
    *DATABASE_FAULTS,
    *LOG_FAULTS,
    *INGESTION_FAULTS,
    *PROCESS_FAULTS,
    *REPEAT_FAULTS,
    *FUNCTION_FAULTS,
)
FAULTS: tuple[type[Fault], ...] = tuple(sorted(_ALL, key=lambda kind: kind.number))
"""The rows that are run, by number."""

NOT_COVERED: Mapping[int, str] = {
    11: "a prompt longer than the model's context",
    25: "packets dropped by the kernel (row 24 swallows them in a relay)",
    29: "few rows of a filtered vector search (tests/integration/test_search_ways.py)",
    31: "another model or dimension under load (tests/integration/test_embedding_switch.py)",
    32: "a killed CREATE INDEX CONCURRENTLY (tests/integration/test_vector_indexes.py)",
    33: "a migration that waits for locks under load (tests/integration/test_migrations.py)",
    42: "a password rotated under load (of vendors' keys: tests/integration/test_provider_secret_faults.py)",
}
"""Rows that this campaign does not run, with what they are and where another test has a part of them."""
