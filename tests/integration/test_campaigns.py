"""Short forms of ``make campaign``, and checks that its audits detect violations. Long ones take an hour."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.campaigns.faults.audit import audit
from tests.campaigns.faults.context_faults import ContextOverflow
from tests.campaigns.faults.database_faults import ThawedConnections
from tests.campaigns.faults.embedder_faults import EmbedderDown
from tests.campaigns.faults.fault import Fault, is_refused
from tests.campaigns.faults.lean_faults import LEAN_FAULTS, LeanKillWaves
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.log_faults import QueueDown, RedeliveredMessages
from tests.campaigns.faults.matrix import FAULTS
from tests.campaigns.faults.network_faults import DroppedPackets
from tests.campaigns.faults.report import table, totals, write_section
from tests.campaigns.faults.runner import run_faults
from tests.campaigns.faults.schema_faults import KilledIndexBuild, QueuedMigration
from tests.campaigns.faults.system import System, running_system
from tests.campaigns.message_campaign import deliver
from tests.campaigns.stream_campaign import MODES, cut_streams
from tests.campaigns.tenancy_campaign import interleave

pytestmark = pytest.mark.slow


class EndedIndexBuild(KilledIndexBuild):
    """On the server that other tests use as well: ends one process instead of all of them."""

    async def end(self, system: System, pid: int) -> None:
        await system.fetch("SELECT pg_terminate_backend(%s)", (pid,))


ROWS: tuple[type[Fault], ...] = (
    ContextOverflow,
    EmbedderDown,
    ThawedConnections,
    EndedIndexBuild,
    QueuedMigration,
    RedeliveredMessages,
    QueueDown,
)
NO_BREAKER = {"llm_circuit_failures": "0", "query_timeout_s": "30", "query_log_timeout_s": "5"}
"""Generous, for slow machines: the long campaign checks lateness."""


@pytest.fixture
async def system(postgres_server: Any, private_dir: Callable[[str], Path]) -> AsyncIterator[System]:
    folder = private_dir("campaign")
    async with running_system(folder, server=postgres_server, socket=postgres_server.socket) as started:
        yield started


# Each row injects its fault for real, and audits
async def test_fault_matrix_rows_report_no_violations(system: System) -> None:
    results = await run_faults(system, ROWS, requests=8, settings=NO_BREAKER)
    assert [(one.number, one.error, one.violations) for one in results if one.error or one.violations] == []
    assert [len(one.answers) for one in results] == [8] * len(ROWS)


async def test_functions_without_pooler_survive_waves_of_killed_connections(
    postgres_server: Any, private_dir: Callable[[str], Path]
) -> None:
    class TwoFunctions(LeanKillWaves):
        concurrency = at_once = 2

    folder, socket = private_dir("lean"), postgres_server.socket
    async with running_system(folder, server=postgres_server, socket=socket, pooler=False) as system:
        [result] = await run_faults(system, [TwoFunctions], requests=8)
    assert (result.error, result.violations) == ("", [])
    assert [one.is_answer for one in result.answers] == [True] * 8


async def test_fault_row_without_required_capability_is_reported_as_not_covered(system: System) -> None:
    """The kernel drops packets where permitted; elsewhere the row reports the reason, and does not pass."""

    class Impatient(DroppedPackets):
        settings = NO_BREAKER | {"query_timeout_s": "1"}

    [result] = await run_faults(system, [Impatient], requests=8)
    assert (result.error, result.violations) == ("", [])
    assert len(result.answers) == (0 if DroppedPackets().missing() else 8)
    result.missing = result.missing or "only root may drop packets"
    assert f"| 25 | {result.name} | not covered here: {result.missing} |" in table([result], FAULTS)
    assert "0 rows that were run found nothing wrong, 1 are not covered" in totals([result])


async def test_interrupted_streams_have_one_final_event_each(system: System) -> None:
    results = await cut_streams(system, 2)
    assert [one.cells() for one in results if not one.passed] == []
    assert [len(one.answers) for one in results] == [2] * len(MODES)


# Every timeout is derived from the deadline
async def test_database_stall_before_query_ends_at_deadline(system: System) -> None:
    """A database that accepts and never answers; its own timeouts are longer, and would cause a 503.

    At first only one table hangs: the collection is readable, the tenant's limits are not.
    """
    async with system.serving({"query_timeout_s": "2", "database_timeout_s": "600"}) as client:
        async with await psycopg.AsyncConnection.connect(system.admin_url) as other:
            await other.execute("LOCK TABLE vectorforge.tenants IN ACCESS EXCLUSIVE MODE")
            answers = await Load(client, 99, 4).run()
            assert [is_refused(one, 504) for one in answers] == [True] * 4
        assert all(one.is_answer for one in await Load(client, 98, 2).run())
        system.relay.swallow()
        answers = await Load(client, 97, 4).run()
        assert [is_refused(one, 504) for one in answers] == [True] * 4
        system.relay.heal()
        assert all(one.is_answer for one in await Load(client, 96, 4).run())  # by the same process


async def test_audit_detects_lost_log_and_stream_without_end(system: System) -> None:
    """The audit detects violations: an answer without a log row, and a stream without an end."""

    class NoFault(Fault):
        number, name = 99, "none"

    load = Load(None, 99, 2)  # type: ignore[arg-type]  # sends no query
    ended: tuple[str, dict[str, list[str]]] = ("done", {"degraded": []})
    load.answers = [
        Answer("never asked", streamed=True, status=200, events=[("meta", {}), ended]),
        Answer("cut without a word", streamed=True, status=200, events=[("meta", {})]),
        Answer("a bug", streamed=False, status=500, body={"code": "internal_error"}),
    ]
    result = await audit(NoFault(), load, system)
    assert result.lost == 2
    text = "\n".join(result.violations)
    for expected in ("2 x an answer without a row", "0 terminal events", "1 x status 500"):
        assert expected in text


# The log: exactly one row for each valid message, only the poison in the dead-letter queue
async def test_duplicated_and_poisoned_messages_yield_exact_rows(postgres_server: Any) -> None:
    found = await deliver(postgres_server, messages=200, killed=0.1, visibility_s=1)
    assert found.doubled > 0
    assert found.passed, found.text()


# Threat 1: no rows of another tenant, by row-level security alone
@pytest.mark.pgbouncer
async def test_interleaved_tenants_read_no_foreign_row(pgbouncer: Any, postgres_server: Any) -> None:
    found = await interleave(pgbouncer.route(postgres_server.app_url), transactions=1500, tenants=20)
    assert (found.counts["foreign"], found.counts["missing"]) == (0, 0)
    assert found.counts["pipelined"] > 0
    assert 1 <= len(found.backends) <= 5


def test_matrix_of_50_rows_is_written_into_its_section(tmp_path: Path) -> None:
    assert [kind.number for kind in FAULTS] == list(range(1, 51))
    assert [kind.number for kind in LEAN_FAULTS] == list(range(1, len(LEAN_FAULTS) + 1))
    shown = table([], FAULTS)
    assert shown.count("| not run |") == len(FAULTS)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- campaign:faults -->\nBefore this run.\n<!-- /campaign:faults -->\nafter\n")
    write_section("faults", shown, page)
    assert "Before this run." not in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("<!-- /campaign:faults -->\nafter\n")
