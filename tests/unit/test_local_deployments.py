"""Output of ``make local-aws`` and ``make deploy-local``."""

import dataclasses
from pathlib import Path

import pytest

from infra.emulator.aws_system import SampleProgress
from infra.emulator.deployment.__main__ import announcement_of
from infra.emulator.deployment.emulated_account import Deployed, check_has_keys
from infra.emulator.deployment.local_deployment import LocalDeployment
from infra.emulator.lambda_service.queue_event_source import BatchResult
from infra.settings import DEV
from vectorforge.errors import ConfigurationError

LOG = Path("logs/ingest.log")


def batch(size: int, failed: int = 0) -> BatchResult:
    records = [{"messageId": str(number)} for number in range(size)]
    return BatchResult(records, frozenset(str(number) for number in range(failed)), None)


async def test_sample_that_is_not_ingested_in_time_is_noted_with_state_and_log() -> None:
    progress, notes = SampleProgress(patience_s=0.01), list[str]()
    await progress.add(batch(10, failed=3))
    await progress.reach(34, notes.append, LOG)
    (note,) = notes
    assert note.startswith("Only 7 of the 34 files of the sample were ingested")
    assert f"see {LOG}, or start without the sample: --no-sample." in note


async def test_ingested_sample_is_not_waited_for() -> None:
    progress, notes = SampleProgress(), list[str]()
    await progress.add(batch(10))
    await progress.add(batch(2))
    await progress.reach(12, notes.append, LOG)
    assert notes == []


def test_keys_of_all_tenants_are_announced() -> None:
    others = dict.fromkeys((field.name for field in dataclasses.fields(Deployed)), "-")
    deployed = Deployed(**others | {"api_keys": {"acme": "key-a", "beta": "key-b", "gamma": "key-c"}})  # type: ignore[arg-type]
    printed = announcement_of(deployed, LocalDeployment(Path("/data")))
    assert "(x-api-key: key-a; tenant acme)" in printed
    assert "Further keys  beta: key-b, gamma: key-c\n" in printed


def test_stage_without_gateway_keys_is_rejected_before_it_is_deployed() -> None:
    query = dataclasses.replace(DEV.query, max_concurrency=10)
    stage = dataclasses.replace(DEV, front_door="function_url", query=query)
    with pytest.raises(ConfigurationError, match="'dev' has no API keys"):
        check_has_keys(stage)
