"""``vectorforge replay``."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from vectorforge.cli.options import TenantOption
from vectorforge.cli.session import CommandContext, Session, session_command
from vectorforge.cli.terminal import Terminal
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import InvalidInputError, NotFoundError
from vectorforge.pipeline.presets import find_preset
from vectorforge.pipeline.types import QueryResult

if TYPE_CHECKING:
    from vectorforge.pipeline.replay import QueryReplay


@dataclass(frozen=True, slots=True)
class _Outcome:
    log: QueryLog
    replay: "QueryReplay"
    result: QueryResult | None

    def as_json(self) -> dict[str, Any]:
        again = None
        if self.result is not None:
            again = {"id": self.result.request_id, "answer": self.result.answer, **dict(self.compared(1))}
        logged = {"id": self.log.id, "answer": self.log.generated_response, **dict(self.compared(0))}
        return {"replay": asdict(self.replay), "logged": logged, "again": again}

    def compared(self, side: int) -> Iterator[tuple[str, object]]:
        """Yield the compared figures of the logged answer (0) or the new one (1)."""
        log, result = self.log, self.result
        for name, old, new in (
            ("variant", log.variant, result and result.variant),
            ("model", log.model, result and result.llm_response and result.llm_response.model),
            ("outcome", log.outcome, result and result.outcome),
            ("chunks", len(log.used_chunk_ids), result and len(result.used_chunk_ids)),
            ("same_chunks", None, result and len({*log.used_chunk_ids} & {*result.used_chunk_ids})),
            ("citations", None, result and len(result.citations)),
            ("cost_usd", log.cost_usd, result and result.cost_usd),
            ("latency_ms", round(log.latency_ms), result and round(result.total_latency_ms)),
        ):
            yield name, (old, new)[side]


@session_command
def replay(
    context: CommandContext,
    query_id: Annotated[UUID, typer.Argument(metavar="ID", help="Id of a query in the log.")],
    against: Annotated[
        str | None, typer.Option(metavar="VARIANT", help="Ask again with this variant.", show_default=False)
    ] = None,
    tenant: TenantOption = None,
) -> None:
    """Rebuild the request of a logged query, and compare its answer with another variant's.

    Shows whether the rebuilt request is the one that went to the model, and which
    chunks, prompt or model have changed since. With --against, the query is run
    again, without the cache and without the conversation, and logged as usual.

    [bold]Examples[/bold]

        vectorforge replay 0193b0a2-7a53-7c1e-9d6c-2f1f3f0c8a11

        vectorforge replay 0193b0a2-7a53-7c1e-9d6c-2f1f3f0c8a11 --against precise
    """

    async def work(session: Session) -> _Outcome:
        services = session.services
        log = await services.query_logs.find_by_id(query_id)
        if log is None:
            raise NotFoundError(f"Query {query_id} not found")
        rebuilt = await services.replayer.replay(log)
        result = None
        if against is not None:
            if not log.query_text or log.query_text.startswith("sha256:"):
                raise InvalidInputError(
                    "The log has no text of this query, so it cannot be asked again.", field="ID"
                )
            preset = find_preset(log.preset or "vectorforge")
            config = preset.config(services.choose_variant(against), use_cache=False)
            result = await services.query_service.query(log.query_text, log.collection_id, config)
        return _Outcome(log, rebuilt, result)

    context.show(context.run(work, tenant=tenant), _Outcome.as_json, _print)


_STATUS = {
    "equal": "The rebuilt request is the one that went to the model.",
    "different": "The rebuilt request differs from the one that went to the model.",
    "not_rebuilt": "The request cannot be rebuilt.",
}


def _print(terminal: Terminal, outcome: _Outcome) -> None:
    terminal.line(_STATUS[outcome.replay.status])
    for change in outcome.replay.changes:
        where = f" (chunk {change.chunk_id})" if change.chunk_id else ""
        terminal.line(f"  {change.kind.replace('_', ' ')}: {change.detail}{where}")
    if outcome.result is None:
        return
    old, new = dict(outcome.compared(0)), dict(outcome.compared(1))
    terminal.line()
    rows = [(name.replace("_", " "), old[name], new[name]) for name in old]
    terminal.table(["", "Logged", "Again"], rows, title="Comparison")
    answers = (outcome.log.generated_response.splitlines(), outcome.result.answer.splitlines())
    terminal.line()
    for line in unified_diff(*answers, "logged answer", "new answer", lineterm=""):
        terminal.line(line)
    if answers[0] == answers[1]:
        terminal.line("The answers are the same.")
