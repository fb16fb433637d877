"""Steps of a search with ``effort``: sub-queries and what each search added."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from vectorforge.errors import InvalidInputError

Effort: TypeAlias = Literal["minimal", "low", "medium", "auto"]
StepKind: TypeAlias = Literal["plan", "search", "read"]
StepOrigin: TypeAlias = Literal["query", "request", "model", "rules"]
"""Author of the step's queries: the user's query itself, the request's ``intents``, a model, or the rules
that split a query without a model."""

MAX_SUB_QUERIES = 4
"""Sub-queries of one round, and intents of a request."""
MAX_SUB_QUERY_CHARS = 300
MAX_SEARCH_ROUNDS = 3
"""Rounds of searches that a model may call for; one more call answers."""


@dataclass(frozen=True, slots=True)
class QueryStep:
    """One step: a plan, a search for one or several queries at once, or the reading of one document."""

    kind: StepKind
    round: int
    """0 for the search for the query itself, then 1 to 3."""
    origin: StepOrigin
    queries: Sequence[str] = ()
    """Sub-queries of a plan, or queries of a search; empty for a plan that needs none."""
    found: int = 0
    """Chunks that the step found."""
    added: int = 0
    """Those that no earlier step found."""
    coverage: float | None = None
    """Share of the query's content words in the chunks found; None if it was not needed."""
    source: str | None = None
    """Source of the document read."""
    tokens: int = 0
    """Tokens of the model call."""
    duration_ms: float = 0.0
    error: str | None = None
    """Code of the error because of which the step was skipped; the query continues without it."""

    @property
    def summary(self) -> str:
        """One line for people."""
        queries = "; ".join(self.queries) or self.source
        if self.error:
            return f"A step of the search was skipped: {self.kind}, {self.error}."
        if self.kind == "plan":
            return f"Plan: {queries or 'one search is enough'}"
        return f"{self.kind.capitalize()}: {queries} ({self.added} new of {self.found} passages)"

    def figures(self) -> Mapping[str, Any]:
        """Return the step for the log: without the texts of the queries, which are the user's words."""
        figures = {**asdict(self), "queries": len(self.queries)}
        del figures["source"]
        return figures


@dataclass(frozen=True, slots=True)
class StepEvent:
    """Step of a search with ``effort`` or intents, between ``MetaEvent`` and ``SourcesEvent``."""

    step: QueryStep


def check_steps(effort: str, intents: Any) -> None:
    """Check the options of a search in steps.

    Raises:
        InvalidInputError: An option is out of range.
    """
    if effort not in get_args(Effort):
        raise InvalidInputError(f"effort must be one of: {', '.join(get_args(Effort))}.", field="effort")
    is_list = isinstance(intents, Sequence) and not isinstance(intents, str | bytes)
    if not (is_list and all(isinstance(text, str) and len(text) <= MAX_SUB_QUERY_CHARS for text in intents)):
        raise InvalidInputError(
            f"intents must be texts of at most {MAX_SUB_QUERY_CHARS} characters.", field="intents"
        )
    if len(intents) > MAX_SUB_QUERIES:
        raise InvalidInputError(f"intents must be at most {MAX_SUB_QUERIES} texts.", field="intents")
