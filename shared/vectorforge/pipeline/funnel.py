"""What became of the passages: how many each step of a query left of those before it."""

from dataclasses import dataclass

from vectorforge.types import Scan, SearchMode


@dataclass(frozen=True, slots=True)
class Funnel:
    """How many passages each step of a query left of those before it.

    The numbers add up: ``candidates = below_min_score + dropped_by_budget + used``, ``cited <= used``, and
    ``candidates <= matched`` where that is known. An answer from the cache has the funnel of the search that
    it was made of; one without any search has ``matched = None`` and zeros.
    """

    matched: int | None = None
    """Passages that collection, profile and filters let through; None: not known."""
    matched_is_at_least: bool = False
    """Whether counting stopped at ``matched``, and there are more: it stops at 10,000 where there are filters
    or a profile, and the collection's own count is taken where there are none."""
    candidates: int = 0
    """Nearest passages that the search returned, at most ``top_k``."""
    below_min_score: int = 0
    """Candidates that scored too low."""
    dropped_by_budget: int = 0
    """Candidates that scored high enough and did not fit into the prompt."""
    cited: int = 0
    """Different passages that the answer cites."""
    search_mode: SearchMode | None = None
    """What they were found by; None: there was no search."""
    scan: Scan | None = None
    """How they were found; None: not known."""

    @property
    def used(self) -> int:
        """Passages in the prompt."""
        return self.candidates - self.below_min_score - self.dropped_by_budget
