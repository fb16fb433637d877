"""Kill the query function a thousand times and audit the query log: exactly one row for each query.

python -m tests.campaigns.query_log_campaign
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.campaigns.query_log.audit import Findings, audit
from tests.campaigns.query_log.delivery import LogQueue, log_writer, sqs_server
from tests.campaigns.query_log.disturbance import plan
from tests.campaigns.query_log.lanes import DisturbedQuery, open_lanes, run_queries
from tests.support.aws.live_query_function import add_passage
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.db.schema.migrate import migrate
from vectorforge.local.postgres import EmbeddedPostgres

_EXPLANATION = """
Every query goes from a client through a function URL to the real query function, which answers from a real
PostgreSQL and a fake model, and logs through SQS (moto) and the real log writer. From outside, at one of
twelve points of each query, its process is stopped (SIGSTOP) and continued, killed (SIGKILL), stopped and
killed, or left alone. Messages are doubled, delayed, shuffled and delivered again, log writers killed, and
messages that nobody can store put among them.

At the end the queue is drained, what the function printed instead of sending is replayed, and the log is
audited: exactly one row for each query of which a client got any byte, none doubled, none invented, the
outcomes as the clients saw them, the poison and nothing else in the dead-letter queue.

exit code: 0 all well, 1 the log is wrong, 2 the arguments are
"""
_PAGE = 1000


async def run_campaign(
    *,
    queries: int,
    seed: int,
    lanes: int,
    app_url: str,
    log_writer_url: str,
    visibility_s: int = 5,
    on_query: Callable[[DisturbedQuery], None] = lambda _: None,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Findings:
    """Query, disturb, drain the queue and audit.

    Args:
        queries: Number of queries.
        seed: Seed of everything random; timing is not.
        lanes: Number of concurrent query functions.
        app_url: Connection string of the app's role to a migrated database.
        log_writer_url: The same as the log writer's role.
        visibility_s: Seconds after which a message that was not deleted is visible again.
        on_query: Called after each query.
        on_phase: Called with the name of each phase when it begins.
    """
    tenant, started = f"campaign-{uuid.uuid4().hex[:8]}", time.monotonic()
    await add_passage(app_url, tenant)
    planned = plan(queries, seed)
    questions = [(f"Question {n}: how long does a refund take?", one) for n, one in enumerate(planned)]
    async with sqs_server() as endpoint:
        queue = await asyncio.to_thread(LogQueue, endpoint, visibility_s=visibility_s)
        async with (
            log_writer(queue, log_writer_url, rng=random.Random(f"{seed}-writer")) as deliveries,
            open_lanes(
                lanes, app_url=app_url, tenant=tenant, endpoint=endpoint, queue_url=queue.url, seed=seed
            ) as opened,
        ):
            on_phase("querying")
            poisoning = asyncio.create_task(_poison(queue, max(8, queries // 25)))
            done = await run_queries(opened, questions, on_query)
            await poisoning
            querying_s = time.monotonic() - started
            printed = [line for lane in opened for line in lane.printed]
            starts = sum(lane.starts for lane in opened)
            on_phase("draining the queue")
            await queue.empty()
        dead = await queue.dead()
    on_phase("auditing")
    await _replay(printed, log_writer_url)
    findings = audit(done, await _rows(app_url, tenant), poison=queue.poison, dead=dead)
    findings.facts = {
        "queries": queries,
        "seed": seed,
        "seconds of querying": round(querying_s),
        "seconds altogether": round(time.monotonic() - started),
        "query functions started": starts,
        "log writers killed": deliveries.killed,
        "batches": deliveries.batches,
        "messages delivered": deliveries.messages,
        "delivered again": deliveries.redelivered,
        "poison": len(queue.poison),
        "records printed instead of sent": len(printed),
    }
    return findings


async def _poison(queue: LogQueue, messages: int) -> None:
    for number in range(messages):
        await queue.add_poison(number)
        await asyncio.sleep(0.2)


async def _replay(printed: list[str], log_writer_url: str) -> None:
    """Store the records that the function printed because the queue did not accept them in time."""
    if not printed:
        return
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write("\n".join(printed) + "\n")
        file.flush()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vectorforge.cli", "logs", "replay", file.name),
            env={"VECTORFORGE_LOG_WRITER_DATABASE_URL": log_writer_url},
            stdout=asyncio.subprocess.DEVNULL,
        )
        if await process.wait() != 0:
            raise RuntimeError("`vectorforge logs replay` failed.")


async def _rows(app_url: str, tenant: str) -> list[QueryLog]:
    found: list[QueryLog] = []
    async with Database(app_url, pool_size=1) as database:
        repository = QueryLogRepository(database.for_tenant(tenant))
        while page := await repository.list(limit=_PAGE, offset=len(found)):
            found += page
    return found


def _run_with_progress(options: argparse.Namespace, console: Console) -> Findings:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="vf-campaign-") as folder,
        Progress(*columns, console=console) as progress,
    ):
        Path(folder).chmod(0o755)  # as root, PostgreSQL runs as an account that has to traverse it
        task = progress.add_task("starting", total=options.queries)
        server = EmbeddedPostgres(Path(folder) / "postgres", settings={"max_connections": "100"})
        server.start()
        try:
            asyncio.run(migrate(server.migrator_url))
            return asyncio.run(
                run_campaign(
                    queries=options.queries,
                    seed=options.seed,
                    lanes=options.lanes,
                    app_url=server.app_url,
                    log_writer_url=server.log_writer_url,
                    on_query=lambda _: progress.advance(task),
                    on_phase=lambda name: progress.update(task, description=name),
                )
            )
        finally:
            server.stop(force=True)


def _show(findings: Findings, console: Console) -> None:
    print(findings.markdown())
    console.print_json(data=findings.facts)
    for violation in findings.violations:
        console.print(f"[red]violation[/red] {violation}", highlight=False)
    console.print(f"{len(findings.violations)} violations")


def main(arguments: list[str] | None = None) -> None:
    """Run the campaign with the options of the command line, and print the table."""
    parser = argparse.ArgumentParser(
        prog='make campaign ARGS="query-log"',
        description=(__doc__ or "").splitlines()[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--queries", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=1, help="of the plan (default 1)")
    parser.add_argument("--lanes", type=int, default=3, help="query functions at work (default 3)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="write campaign.json and campaign.md")
    options = parser.parse_args(arguments)
    if options.queries < 1 or options.lanes < 1:
        parser.error("--queries and --lanes must be at least 1.")
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # it would report every killed client
    console = Console()
    findings = _run_with_progress(options, console)
    _show(findings, console)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "campaign.json").write_text(json.dumps(findings.as_json(), indent=1) + "\n")
        (options.output / "campaign.md").write_text(findings.markdown())
    sys.exit(1 if findings.violations else 0)


if __name__ == "__main__":
    main()
