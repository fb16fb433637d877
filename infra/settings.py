"""Settings of the stages: size, availability, egress, starts, retention. The only file to edit for them.

    python -m infra.app            reads the stage from CDK's context: cdk synth -c stage=prod

Prices behind the defaults: docs/operate/costs.md.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast, get_args

from infra.setting_types import (
    Architecture,
    CodeSettings,
    DatabaseSettings,
    FunctionSettings,
    MonitoringSettings,
    NetworkSettings,
    ServiceObjective,
    SettingsError,
)
from infra.stage_settings import StageSettings
from infra.vendor_addresses import without_known_ipv6


def network_for(environment: Mapping[str, str], *, flow_logs: bool = False) -> NetworkSettings:
    """Return egress by IPv6, free of charge, or NAT in both zones where a vendor is not known to have IPv6.

    Args:
        environment: Settings that name the vendors, as in ``StageSettings.environment``.
        flow_logs: As ``NetworkSettings.flow_logs``.
    """
    if without_known_ipv6(environment):
        return NetworkSettings(egress="nat", nat_gateways=2, flow_logs=flow_logs)
    return NetworkSettings(egress="dual_stack", flow_logs=flow_logs)


DEV = StageSettings(
    stage="dev",
    network=NetworkSettings(egress="dual_stack"),
    database=DatabaseSettings(
        instance_type="t4g.micro",
        storage_gib=20,
        max_storage_gib=50,
        multi_az=False,
        backup_days=1,
        deletion_protection=False,
        performance_insights=False,
        log_retention_days=7,
    ),
    query=FunctionSettings(memory_mb=1769, timeout_s=150),
    log_writer=FunctionSettings(memory_mb=512, timeout_s=30, max_concurrency=2),
    ingest=FunctionSettings(memory_mb=3008, timeout_s=900, max_concurrency=2),
    migrate=FunctionSettings(memory_mb=512, timeout_s=900),
    start="on_demand",
    monitoring=MonitoringSettings(alarms="essential", dashboard=False, topic_key=False),
    keep_data=False,
    log_retention_days=7,
)

LEAN = dataclasses.replace(
    DEV,
    stage="lean",
    database=dataclasses.replace(DEV.database, proxy=False),
    query=dataclasses.replace(DEV.query, max_concurrency=10),
)
"""The least that answers: functions log in to the instance, and ten queries run at a time."""

_PROD_VENDORS: Mapping[str, str] = MappingProxyType({})
"""``environment`` of prod; without settings it uses OpenAI. Its egress follows from the vendors."""

PROD = StageSettings(
    stage="prod",
    network=network_for(_PROD_VENDORS, flow_logs=True),
    database=DatabaseSettings(
        instance_type="t4g.medium",
        storage_gib=50,
        max_storage_gib=500,
        multi_az=True,
        backup_days=14,
        deletion_protection=True,
        performance_insights=True,
        log_retention_days=90,
    ),
    query=FunctionSettings(memory_mb=1769, timeout_s=150),
    log_writer=FunctionSettings(memory_mb=512, timeout_s=30, max_concurrency=5),
    ingest=FunctionSettings(memory_mb=3008, timeout_s=900, max_concurrency=5),
    migrate=FunctionSettings(memory_mb=512, timeout_s=900),
    start="snap_start",
    canary=True,
    probe=FunctionSettings(memory_mb=256, timeout_s=120),
    objective=ServiceObjective(),
    monthly_budget_dollars=300,
    web_acl=True,
    api_explorer=False,
    log_retention_days=90,
    requests_per_second=100,
    burst=200,
    environment=_PROD_VENDORS,
)

LARGE = dataclasses.replace(
    PROD,
    stage="large",
    database=dataclasses.replace(
        PROD.database, instance_type="m7g.xlarge", storage_gib=200, max_storage_gib=2000
    ),
    log_writer=dataclasses.replace(PROD.log_writer, max_concurrency=10),
    ingest=dataclasses.replace(PROD.ingest, max_concurrency=10),
    monthly_budget_dollars=1000,
    requests_per_second=500,
    burst=1000,
)
"""As prod, with four steady cores and 16 GB of memory for the database."""

STAGES: Mapping[str, StageSettings] = MappingProxyType(
    {stage.stage: stage for stage in (DEV, LEAN, PROD, LARGE)}
)


def choose(
    stage: str,
    *,
    architecture: str | None = None,
    python_version: str | None = None,
    canary: bool | None = None,
) -> StageSettings:
    """Return a stage's settings, optionally for another machine (the emulator's) or without its canary.

    Raises:
        SettingsError: The stage or the architecture is unknown.
    """
    found = STAGES.get(stage)
    if found is None:
        raise SettingsError(f"The stage {stage!r} is unknown; infra/settings.py has: {', '.join(STAGES)}.")
    machine = architecture or found.code.architecture
    if machine not in get_args(Architecture):
        raise SettingsError(f"architecture must be arm64 or x86_64, not {machine!r}.")
    code = CodeSettings(python_version or found.code.python_version, cast("Architecture", machine))
    return dataclasses.replace(found, code=code, canary=found.canary if canary is None else canary)
