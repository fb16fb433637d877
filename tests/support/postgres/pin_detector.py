"""Relay between clients and PostgreSQL that records what would pin a connection behind RDS Proxy."""

import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.postgres.pin_rules import PinRule, refused_at_startup, rules_of_text
from tests.support.postgres.postgres_messages import CANCEL_REQUEST, Message, StartupPacket
from tests.support.postgres.postgres_relay import MessageObserver, PostgresRelay
from vectorforge.threads import LoopThread

_SHOWN = 200
"""Characters of a statement in a report."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A message that would have pinned its connection, or caused its rejection."""

    rule: PinRule
    sent: str
    """Text of the statement or name of the object that it creates, shortened."""
    role: str
    opened_during: str
    """Test that ran when the connection was opened."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.sent} (as {self.role}, connected during {self.opened_during})"


class PinDetector:
    """Listens on Unix sockets while it is an entered context manager, in a thread of its own.

    A statement is judged before it is relayed, so a client that has its result finds its pins in ``take``.

    Args:
        directory: Directory of its sockets: the ``host`` of the connection strings that use it.
        unjudged: Roles whose connections are relayed unread, because they do not come through RDS Proxy.
    """

    def __init__(self, directory: Path, *, unjudged: Collection[str] = ()) -> None:
        self.directory = directory
        self.unjudged = set(unjudged)
        """May be added to, before the role connects."""
        self.connections: Counter[str] = Counter()
        """Judged connections by role."""
        self.messages: Counter[str] = Counter()
        """Judged messages by kind."""
        self.longest_statement = 0
        """Bytes of the longest text judged."""
        self.cancel_requests = 0
        """Cancel requests of all roles, since they do not name one. RDS Proxy ignores them.
        https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy.html#rds-proxy.limitations-pg"""
        self._pins: list[Pin] = []
        self._lock = threading.Lock()
        self._relay = PostgresRelay(self._opened)
        self._thread: LoopThread | None = None

    @property
    def statements(self) -> int:
        """Number of statements judged."""
        return self.messages["Query"] + self.messages["Parse"]

    def listen(self, target: Path) -> None:
        """Accept connections for the socket ``target`` at a socket of the same name in ``directory``."""
        assert self._thread is not None, "enter the detector first"
        self._thread.run(lambda: self._relay.listen(self.directory / target.name, target))

    def take(self) -> list[Pin]:
        """Return the pins since the last call, in the order of sending. Safe from any thread."""
        with self._lock:
            taken, self._pins = self._pins, []
        return taken

    def __enter__(self) -> Self:
        self._thread = LoopThread(self._relaying(), name="pin detector")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.close()

    @asynccontextmanager
    async def _relaying(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self._relay.close()

    def _opened(self, packet: StartupPacket) -> MessageObserver | None:
        if packet.code == CANCEL_REQUEST:
            self.cancel_requests += 1
            return None
        role = packet.parameters.get("user", "")
        if role in self.unjudged:
            return None
        self.connections[role] += 1
        note = partial(self._note, role, os.environ.get("PYTEST_CURRENT_TEST", "no test"))
        for refused in refused_at_startup(packet.version, packet.parameters):
            note(PinRule.STARTUP, refused)
        return partial(self._judge, note)

    def _judge(self, note: Callable[[PinRule, str], None], message: Message) -> None:
        self.messages[message.kind] += 1
        self.longest_statement = max(self.longest_statement, len(message.text))
        if message.kind == "FunctionCall":
            note(PinRule.OPAQUE, "FunctionCall")
        if message.name:
            named = PinRule.NAMED_STATEMENT if message.kind == "Parse" else PinRule.CURSOR
            note(named, f"{message.kind} {message.name}")
        for rule in sorted(rules_of_text(message.text)):
            note(rule, message.text.decode(errors="replace"))

    def _note(self, role: str, opened_during: str, rule: PinRule, sent: str) -> None:
        shown = sent if len(sent) <= _SHOWN else f"{sent[:_SHOWN]}... ({len(sent):,} characters)"
        with self._lock:
            self._pins.append(Pin(rule, shown, role, opened_during))
