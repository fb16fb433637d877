"""A short kill campaign: every point, every way to stop a process. ``make campaign`` runs the long one."""

import pytest

from tests.campaigns.query_log.disturbance import Action, Point
from tests.campaigns.query_log_campaign import run_campaign
from vectorforge.local.postgres import EmbeddedPostgres

pytestmark = pytest.mark.slow

QUERIES = len(Point) * len(Action)


async def test_killed_processes_leave_one_log_row_per_query(
    postgres_server: EmbeddedPostgres,
) -> None:
    findings = await run_campaign(
        queries=QUERIES,
        seed=7,
        lanes=2,
        app_url=postgres_server.app_url,
        log_writer_url=postgres_server.log_writer_url,
        visibility_s=4,
    )
    assert findings.violations == [], findings.markdown()
    everything = findings.rows[-1]
    assert everything[1:4] == (QUERIES, QUERIES // 4, QUERIES // 2)  # queries, continued, killed
