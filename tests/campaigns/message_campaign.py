"""Send many query log messages, some twice, some poisonous, kill their writers, and count rows.

python -m tests.campaigns messages
"""

import argparse
import asyncio
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console

from tests.campaigns.fault_campaign import machine, progress_of, short_folder
from tests.campaigns.faults.report import write_section
from tests.campaigns.query_log.delivery import LogQueue, log_writer
from tests.support.aws.fake_aws import aws_client
from tests.support.aws.fake_sqs import FakeSqs
from tests.support.rag.query_logs import make_log, message
from vectorforge.db.schema.migrate import migrate
from vectorforge.local.postgres import EmbeddedPostgres

_ENTRIES = 10  # maximum of one SendMessageBatch
_DRAIN_TIMEOUT_S = 3600
_ROWS = """
SELECT count(*) FILTER (WHERE id = ANY (%(ids)s)), count(*)
FROM vectorforge.query_logs WHERE tenant_id = %(tenant)s
"""


@dataclass(slots=True)
class Delivered:
    """Result of the campaign."""

    sent: int
    """Number of distinct messages, poisonous ones included."""
    poison: int
    doubled: int
    """Messages that the queue delivered twice."""
    rows: int = 0
    foreign: int = 0
    """Rows that were never sent."""
    dead: int = 0
    """Poison among the dead letters."""
    wrongly_dead: int = 0
    killed: dict[str, int] = field(default_factory=dict)
    deliveries: int = 0
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Return whether there is exactly one row for each valid message, and no other."""
        return (self.rows, self.foreign, self.wrongly_dead) == (self.sent - self.poison, 0, 0) and (
            self.dead == self.poison
        )

    def text(self) -> str:
        """Return the result as one paragraph."""
        return (
            f"{self.sent:,} messages, {self.doubled:,} duplicated in the queue, {self.poison:,} invalid; "
            f"{self.deliveries:,} deliveries, log writers killed: {sum(self.killed.values())}; "
            f"{self.seconds:.0f} s. Rows: {self.rows:,} of {self.sent - self.poison:,}, {self.foreign} "
            f"that were never sent. Dead letters: {self.dead:,} of {self.poison:,}, {self.wrongly_dead} good."
        )


async def deliver(
    postgres: EmbeddedPostgres,
    *,
    messages: int,
    seed: int = 1,
    killed: float = 0.01,
    visibility_s: int = 10,
    on_sent: Callable[[int], None] = lambda _: None,
) -> Delivered:
    """Send messages, store them, and count the rows.

    Args:
        postgres: A running, migrated server.
        messages: Number of messages; a twentieth is poison, a fifth is sent twice.
        seed: Seed of everything random.
        killed: Share of the batches whose writer is killed before it starts; the same share after it has
            stored.
        visibility_s: Seconds after which a message is visible again.
        on_sent: Called with the number of messages just sent.
    """
    tenant, started, poison = f"messages-{uuid.uuid4().hex[:8]}", time.monotonic(), messages // 20
    logs = [make_log() for _ in range(messages - poison)]
    async with FakeSqs(duplicated=0.2, random=random.Random(f"{seed}-queue")) as sqs:
        queue = await asyncio.to_thread(LogQueue, sqs.url, visibility_s=visibility_s)
        async with log_writer(
            queue, postgres.log_writer_url, rng=random.Random(seed), killed=killed, batch_size=100
        ) as deliveries:
            sending = asyncio.create_task(_send(sqs.url, queue.url, tenant, logs, on_sent))
            for kind in range(poison):
                await queue.add_poison(kind)
            await sending
            await queue.empty(_DRAIN_TIMEOUT_S)
        dead = Counter(await queue.dead())
    found = Delivered(messages, poison, sqs.doubled, killed=deliveries.killed, deliveries=deliveries.messages)
    expected = Counter(queue.poison)
    found.dead = len(dead & expected)
    found.wrongly_dead = len(set(dead) - set(expected))
    async with await psycopg.AsyncConnection.connect(postgres.migrator_url) as connection:
        parameters = {"ids": [one.id for one in logs], "tenant": tenant}
        row = await (await connection.execute(_ROWS, parameters)).fetchone()
    assert row is not None
    found.rows, found.foreign = row[0], row[1] - row[0]
    found.seconds = time.monotonic() - started
    return found


async def _send(
    endpoint: str, url: str, tenant: str, logs: list[Any], on_sent: Callable[[int], None]
) -> None:
    sqs = aws_client("sqs", endpoint)
    for start in range(0, len(logs), _ENTRIES):
        entries = [
            {"Id": str(number), "MessageBody": message(tenant, log)}
            for number, log in enumerate(logs[start : start + _ENTRIES])
        ]
        await asyncio.to_thread(sqs.send_message_batch, QueueUrl=url, Entries=entries)
        on_sent(len(entries))
    sqs.close()


async def _run(options: argparse.Namespace, folder: Path) -> Delivered:
    postgres = EmbeddedPostgres(folder / "postgres", settings={"max_connections": "50"})
    await asyncio.to_thread(postgres.start)
    try:
        await migrate(postgres.migrator_url)
        with progress_of(Console()) as progress:
            task = progress.add_task("messages sent", total=options.messages - options.messages // 20)
            return await deliver(
                postgres,
                messages=options.messages,
                seed=options.seed,
                on_sent=lambda count: progress.advance(task, count),
            )
    finally:
        await asyncio.to_thread(postgres.stop, force=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the campaign with the options of the command line, and write the report."""
    parser = argparse.ArgumentParser(
        prog='make campaign ARGS="messages"',
        description=(__doc__ or "").splitlines()[0],
        epilog="exit code: 0 exactly one row for each good message, the poison alone is dead, 1 not",
    )
    parser.add_argument("--messages", type=int, default=100_000, help="altogether (default 100,000)")
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default 1)")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/results/reliability.md")
    options = parser.parse_args(arguments)
    if options.messages < 20:
        parser.error("--messages must be at least 20.")
    with short_folder() as folder:
        found = asyncio.run(_run(options, folder))
    print(found.text())
    if not options.no_page:
        write_section("messages", f"{machine()}: {found.text()}")
    sys.exit(0 if found.passed else 1)


if __name__ == "__main__":
    main()
