"""All rows of the fault matrix."""

from tests.campaigns.faults.context_faults import CONTEXT_FAULTS
from tests.campaigns.faults.database_faults import DATABASE_FAULTS
from tests.campaigns.faults.embedder_faults import EMBEDDER_FAULTS
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.function_faults import FUNCTION_FAULTS
from tests.campaigns.faults.hostile_faults import HOSTILE_FAULTS
from tests.campaigns.faults.ingestion_faults import INGESTION_FAULTS
from tests.campaigns.faults.log_faults import LOG_FAULTS
from tests.campaigns.faults.network_faults import NETWORK_FAULTS
from tests.campaigns.faults.process_faults import PROCESS_FAULTS
from tests.campaigns.faults.repeat_faults import REPEAT_FAULTS
from tests.campaigns.faults.schema_faults import SCHEMA_FAULTS
from tests.campaigns.faults.search_faults import SEARCH_FAULTS
from tests.campaigns.faults.secret_faults import SECRET_FAULTS
from tests.campaigns.faults.vendor_faults import VENDOR_FAULTS

_ALL = (
    *VENDOR_FAULTS,
    *CONTEXT_FAULTS,
    *SEARCH_FAULTS,
    *EMBEDDER_FAULTS,
    *DATABASE_FAULTS,
    *NETWORK_FAULTS,
    *SCHEMA_FAULTS,
    *SECRET_FAULTS,
    *LOG_FAULTS,
    *INGESTION_FAULTS,
    *PROCESS_FAULTS,
    *REPEAT_FAULTS,
    *FUNCTION_FAULTS,
    *HOSTILE_FAULTS,
)
FAULTS: tuple[type[Fault], ...] = tuple(sorted(_ALL, key=lambda kind: kind.number))
"""By number."""
