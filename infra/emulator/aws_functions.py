"""The functions of a stack that an emulator runs: all but the authorizer and the probe."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from infra.bundling.bundle import ROOT
from infra.emulator.aws_emulator import REGION
from infra.emulator.aws_resources import AwsResources
from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from vectorforge.aws.secrets import KEY_SETTINGS
from vectorforge.config import VectorForgeConfig, known_variables
from vectorforge.errors import ConfigurationError

QUERY_TIMEOUT_S = 150
"""More than VECTORFORGE_QUERY_TIMEOUT_S, so that a query runs out of time before its function does."""
LOG_WRITER_TIMEOUT_S = 30
INGEST_TIMEOUT_S = 900
MIGRATE_TIMEOUT_S = 300
SLOW_EMULATOR = {"VECTORFORGE_QUERY_LOG_TIMEOUT_S": "2"}
"""First calls of emulators take longer than those of SQS."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_INIT_TIMEOUT_S = 60.0  # AWS gives 10 s, on a machine that does nothing else
_FOLDERS = ["HOME", "XDG_CACHE_HOME", "TMPDIR"]  # where the local model is kept


@dataclass(frozen=True, slots=True)
class LocalFunctions:
    """One configuration for each function."""

    query: FunctionConfiguration
    log_writer: FunctionConfiguration
    ingest: FunctionConfiguration
    migrate: FunctionConfiguration


def provider_keys(config: VectorForgeConfig) -> dict[str, SecretStr]:
    """Return the providers' keys of this environment, which are stored in the secret as on AWS."""
    found = {}
    for name in sorted(KEY_SETTINGS):
        key = getattr(config.llm, name, None) or getattr(config.embedding, name, None)
        if isinstance(key, SecretStr) and key.get_secret_value():
            found[name] = key
    return found


def configure_functions(
    config: VectorForgeConfig, migrator_url: str, resources: AwsResources, *, endpoint_url: str
) -> LocalFunctions:
    """Configure each function with the settings of this environment, without keys.

    Args:
        config: With the database's URLs.
        migrator_url: Connection string of the role that owns the schema.
        resources: Queues, buckets, secret.
        endpoint_url: URL of the emulator.

    Raises:
        ConfigurationError: The URL of the log writer is missing.
    """
    folders = {name: os.environ[name] for name in _FOLDERS if os.environ.get(name)}
    shared = {
        **SLOW_EMULATOR,
        **passed_on(),
        **folders,
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_REGION": REGION,
    }
    shared["POWERTOOLS_METRICS_NAMESPACE"] = "VectorForge"
    database = _url(config.database.database_url, "VECTORFORGE_DATABASE_URL")
    log_writer = _url(config.database.log_writer_database_url, "VECTORFORGE_LOG_WRITER_DATABASE_URL")
    secret = {"VECTORFORGE_PROVIDER_SECRET_ID": resources.provider_secret_id}
    ingestion = {"VECTORFORGE_INGESTION_QUEUE_URL": resources.ingestion_queue_url}
    query_log = {
        "VECTORFORGE_QUERY_LOG_QUEUE_URL": resources.query_log_queue_url,
        "VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET": resources.overflow_bucket,
    }
    query = {
        "VECTORFORGE_RESPONSE_MODE": "stream",
        "VECTORFORGE_DATABASE_URL": database,
        "VECTORFORGE_UPLOADS_BUCKET": resources.uploads_bucket,
        **_login(config),
    }

    def function(name: str, timeout_s: float, **environment: str) -> FunctionConfiguration:
        return FunctionConfiguration(
            recursive_loop="Allow" if name == "ingest" else "Terminate",
            handler=f"functions.{name}.handler.handler",
            name=f"vectorforge-{name.replace('_', '-')}",
            environment={**shared, **environment},
            timeout_s=timeout_s,
            init_timeout_s=_INIT_TIMEOUT_S,
            task_root=ROOT,
        )

    return LocalFunctions(
        query=function("query", QUERY_TIMEOUT_S, **query, **query_log, **ingestion, **secret),
        log_writer=function(
            "log_writer", LOG_WRITER_TIMEOUT_S, VECTORFORGE_LOG_WRITER_DATABASE_URL=log_writer, **query_log
        ),
        ingest=function("ingest", INGEST_TIMEOUT_S, VECTORFORGE_DATABASE_URL=database, **ingestion, **secret),
        migrate=function("migrate", MIGRATE_TIMEOUT_S, VECTORFORGE_MIGRATOR_DATABASE_URL=migrator_url),
    )


def passed_on() -> Mapping[str, str]:
    """Return the settings of this environment without secrets and database URLs."""
    keys = {f"VECTORFORGE_{name.upper()}" for name in KEY_SETTINGS}
    names = {name for name in known_variables() - keys if not name.endswith("_DATABASE_URL")}
    return {name: os.environ[name] for name in sorted(names) if os.environ.get(name)}


def _login(config: VectorForgeConfig) -> dict[str, str]:
    """Return the settings of authentication: without API keys the local tenant, as ``vectorforge up``."""
    server = config.server
    auth = "api_key" if server.api_keys else "local"
    names = list(dict.fromkeys([*_LOOPBACK, *server.allowed_hosts]))
    return {"VECTORFORGE_AUTH": auth, "VECTORFORGE_ALLOWED_HOSTS": json.dumps(names)}


def _url(url: SecretStr | None, variable: str) -> str:
    if url is None:
        raise ConfigurationError(f"{variable} is required with an external database.")
    return url.get_secret_value()
