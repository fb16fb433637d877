"""A short erasure campaign; ``make campaign ARGS="erasure"`` runs a large one."""

from collections.abc import Callable

import pytest

from tests.campaigns.erasure_campaign import run_campaign
from tests.support.aws.fake_aws import FakeAws


async def test_erasure_leaves_no_trace_in_dump_queues_and_logs(
    make_database: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeAws() as aws:
        for name, value in aws.environment.items():
            monkeypatch.setenv(name, value)
        findings = await run_campaign(make_database(), aws, chunks=300)
    assert findings.violations(limit_s=float("inf")) == []
