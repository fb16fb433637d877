"""Compare the query log with the clients' results."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.campaigns.query_log.disturbance import Action, Point
from tests.campaigns.query_log.lanes import DisturbedQuery
from vectorforge.db.repositories.query_log_repo import QueryLog

OUTCOMES = ("started", "answered", "error", "aborted")
COLUMNS = ("point", "queries", "stopped", "killed", "reached client", "whole answer", "rows", *OUTCOMES)


@dataclass(slots=True)
class Findings:
    """The result of a campaign."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    """Rows for each point and the total; cells in the order of ``COLUMNS``."""
    violations: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(map(str, row))} |" for row in self.rows]
        return "\n".join([*lines, ""])

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON."""
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in self.rows]
        return {"points": rows, "violations": self.violations, "facts": self.facts}


def audit(
    queries: Sequence[DisturbedQuery], logs: Sequence[QueryLog], *, poison: Sequence[str], dead: Sequence[str]
) -> Findings:
    """Compare queries, rows and dead letters.

    Args:
        queries: All queries.
        logs: Every row of the tenant.
        poison: Bodies that must become dead letters.
        dead: Bodies in the dead-letter queue.
    """
    by_question: dict[str, list[QueryLog]] = defaultdict(list)
    for log in logs:
        by_question[log.query_text].append(log)
    findings = Findings()
    known = {one.question for one in queries}
    findings.violations += [f"a row without a question: {text}" for text in by_question if text not in known]
    findings.violations += [f"{_name(one)}: {text}" for one in queries for text in _wrong(one, by_question)]
    for what, count in (Counter(poison) - Counter(dead)).items():
        findings.violations.append(f"{count} poison not in the dead-letter queue: {what[:80]}")
    for what, count in (Counter(dead) - Counter(poison)).items():
        findings.violations.append(f"{count} in the dead-letter queue without being poison: {what[:200]}")
    for point in Point:
        here = [one for one in queries if one.disturbance.point is point]
        findings.rows.append((point.value, *_counts(here, by_question)))
    findings.rows.append(("all", *_counts(queries, by_question)))
    return findings


def _wrong(query: DisturbedQuery, by_question: Mapping[str, Sequence[QueryLog]]) -> list[str]:
    outcomes = [log.outcome for log in by_question.get(query.question, ())]
    wrong = []
    if len(outcomes) > 1:
        wrong.append(f"{len(outcomes)} rows: {outcomes}")
    if query.reached_client and not outcomes:
        wrong.append(f"no row, but its client got {query.received} bytes with status {query.status}")
    if query.saw_done and outcomes and outcomes != ["answered"]:
        wrong.append(f"the client has the whole answer, the row says {outcomes}")
    if query.disturbance.happened and query.disturbance.action is Action.STOP and not query.saw_done:
        wrong.append(f"stopped and continued, but not answered: {_seen(query)}")
    if query.disturbance.action is Action.NONE and not query.saw_done:
        wrong.append(f"undisturbed, but not answered: {_seen(query)}")
    if query.disturbance.action is not Action.NONE and not query.disturbance.happened:
        wrong.append(f"its point was never reached: {_seen(query)}")
    return wrong


def _seen(query: DisturbedQuery) -> str:
    return f"status {query.status}, events {query.events}, cut {query.cut}, error {query.error!r}"


def _name(query: DisturbedQuery) -> str:
    return f"{query.question!r} ({query.disturbance.action} at {query.disturbance.point.value!r})"


def _counts(
    queries: Sequence[DisturbedQuery], by_question: Mapping[str, Sequence[QueryLog]]
) -> tuple[int, ...]:
    logs = [log for one in queries for log in by_question.get(one.question, ())]
    outcomes = Counter(log.outcome for log in logs)
    happened = [one.disturbance for one in queries if one.disturbance.happened]
    return (
        len(queries),
        sum(one.action is Action.STOP for one in happened),
        sum(one.action.is_deadly for one in happened),
        sum(one.reached_client for one in queries),
        sum(one.saw_done for one in queries),
        len(logs),
        *(outcomes[name] for name in OUTCOMES),
    )
