"""Check the clients' results and the query log against the invariants of every row."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import DEADLINE_S, TENANT, System

GRACE_S = 0.5
"""Seconds allowed after the deadline, for the network and the error response."""
_ALLOWED_5XX = (502, 503, 504)
_SHOWN = 5
"""Maximum number of examples of each kind of violation."""
COLUMNS = (
    "#",
    "fault",
    "requests",
    "answered",
    "degraded",
    "refused",
    "cut",
    "worst s",
    "late",
    "lost logs",
    "double rows",
    "violations",
)

_ROWS = """
SELECT query_text, outcome FROM vectorforge.query_logs WHERE tenant_id = %s AND query_text = ANY (%s)
"""


@dataclass(slots=True)
class RowResult:
    """Result of one row of the matrix."""

    number: int
    name: str
    answers: Sequence[Answer] = ()
    violations: list[str] = field(default_factory=list)
    lost: int = 0
    """Answers that are missing from the log."""
    doubled: int = 0
    late: list[str] = field(default_factory=list)
    """Requests that were open longer than the deadline and half a second; counted separately, because any
    request is late on a busy machine."""
    error: str = ""
    """Reason why the row could not be completed."""
    missing: str = ""
    """Missing requirement of this machine, because of which the row was not run."""

    @property
    def passed(self) -> bool:
        """Return whether there is no violation."""
        return not self.violations and not self.late and not self.error

    def cells(self) -> tuple[Any, ...]:
        """Return the cells in the order of ``COLUMNS``."""
        answered = [one for one in self.answers if one.is_answer]
        refused = Counter(_refusal(one) for one in self.answers if not one.is_answer and not one.cut)
        return (
            self.number,
            self.name,
            len(self.answers),
            sum(not one.degraded for one in answered),
            sum(bool(one.degraded) for one in answered),
            ", ".join(f"{count} x {name}" for name, count in sorted(refused.items()) if name) or 0,
            sum(one.cut for one in self.answers),
            f"{max((one.seconds for one in self.answers), default=0.0):.1f}",
            len(self.late),
            self.lost,
            self.doubled,
            "not run" if self.error else len(self.violations),
        )


def _refusal(answer: Answer) -> str:
    if answer.left:
        return "left"
    if answer.hung:
        return "hung"
    problem = answer.problem
    where = "event" if answer.status == 200 else ""
    return f"{(problem or {}).get('status', answer.status)} {where}".strip()


async def audit(fault: Fault, load: Load, system: System) -> RowResult:
    """Judge the row after its fault has ended and the log writer has stored all records."""
    result = RowResult(fault.number, fault.name, load.answers)
    found: dict[str, list[str]] = {}
    for answer in load.answers:
        for kind in filter(None, (_against_all_rules(answer, fault), fault.wrong(answer))):
            found.setdefault(kind, []).append(_described(answer))
        if answer.seconds > DEADLINE_S + GRACE_S and not answer.left:
            result.late.append(f"{answer.seconds:.1f} s: {_described(answer)}")
    result.violations += [
        f"{len(examples)} x {kind}: {'; '.join(examples[:_SHOWN])}" for kind, examples in found.items()
    ]
    if not fault.unlogged:
        await _audit_log(result, system)
    result.violations += await fault.audit(system, load.answers)
    return result


def _against_all_rules(answer: Answer, fault: Fault) -> str:
    """Yield the violations that no fault permits."""
    if answer.hung:
        return "hung"
    if answer.unreadable:
        return "a body that is no JSON"
    if answer.left:
        return ""
    if answer.cut or answer.status is None:
        return "" if fault.cuts else "cut off"
    if answer.status == 429 and fault.throttled:
        return ""
    return _wrong_stream(answer) if answer.status == 200 else _wrong_refusal(answer)


def _wrong_stream(answer: Answer) -> str:
    if not answer.streamed:
        return ""
    if len(answer.terminal) != 1:
        return f"a stream with {len(answer.terminal)} terminal events"
    if answer.events[-1][0] != answer.terminal[0]:
        return "an event after the terminal one"
    if answer.terminal == ["error"] and "code" not in (answer.problem or {}):
        return "an error event without problem details"
    return ""


def _wrong_refusal(answer: Answer) -> str:
    assert answer.status is not None
    if answer.status >= 500 and answer.status not in _ALLOWED_5XX:
        return f"status {answer.status}"
    if answer.problem is None or "code" not in answer.problem:
        return f"status {answer.status} without problem details"
    if answer.status in (429, 503) and "retry-after" not in answer.headers:
        return f"status {answer.status} without Retry-After"
    return ""


def _described(answer: Answer) -> str:
    """Describe an answer briefly, without its texts."""
    problem = answer.problem or {}
    code = f"{problem.get('code')} ({str(problem.get('detail', ''))[:60]})" if problem else None
    names = [name for name, _ in answer.events]
    return (
        f"{answer.question[:24]!r} status {answer.status} code {code} degraded {answer.degraded} "
        f"last events {names[-2:]} after {answer.seconds:.1f} s"
    )


async def _audit_log(result: RowResult, system: System) -> None:
    """Check for exactly one log row for each answer that a client received fully or in part."""
    questions = [_stored(answer.question) for answer in result.answers]
    rows = await system.fetch(_ROWS, (TENANT, questions))
    counts = Counter(row["query_text"] for row in rows)
    lost = [one for one in result.answers if one.status == 200 and not counts[_stored(one.question)]]
    result.lost = len(lost)
    if lost:
        shown = "; ".join(map(_described, lost[:_SHOWN]))
        result.violations.append(f"{len(lost)} x an answer without a row in the log: {shown}")
    result.doubled = sum(count - 1 for count in counts.values())
    if result.doubled:
        doubled = [text for text, count in counts.items() if count > 1]
        result.violations.append(f"{result.doubled} x a second row for a question: {doubled[:_SHOWN]}")
    ended = {row["query_text"] for row in rows if row["outcome"] != "started"}
    for answer in result.answers:
        if answer.is_answer and counts[_stored(answer.question)] and _stored(answer.question) not in ended:
            result.violations.append(f"a whole answer whose row says 'started': {_described(answer)}")


def _stored(question: str) -> str:
    """Return the text as stored in the log: characters that PostgreSQL rejects become U+FFFD."""
    return "".join("\ufffd" if char == "\0" or "\ud800" <= char <= "\udfff" else char for char in question)
