"""Wait of ``make local-aws`` for its sample."""

from pathlib import Path

from infra.emulator.aws_system import SampleProgress
from infra.emulator.lambda_service.queue_event_source import BatchResult

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
