"""The secret that says which tenant each key of API Gateway belongs to."""

from collections.abc import Mapping
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.secret_readers import Reader, secret_reader


def gateway_key_reader(secret_id: str) -> Reader:
    """Reads ids of keys and their tenants in at most 3 s, and leaves no connection for a snapshot.

    Args:
        secret_id: Name or ARN.
    """
    # With the providers' keys less than the ten seconds that Lambda gives an init phase.
    clients = AwsClients(connect_timeout_s=1.0, read_timeout_s=2.0, max_attempts=1)
    read = secret_reader(
        clients,
        secret_id,
        max_age_s=1,  # of Powertools' copy, which nobody reads
        setting="VECTORFORGE_GATEWAY_KEY_SECRET_ID",
        content='key ids and tenants, e.g. {"k3yidacm3e": "acme"}',
    )

    def read_and_disconnect() -> Mapping[str, Any]:
        try:
            return read()
        finally:
            clients.disconnect()

    return read_and_disconnect
