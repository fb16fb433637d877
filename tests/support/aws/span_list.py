"""A tracer that keeps its spans in a list."""

from collections.abc import Iterator
from contextlib import contextmanager


class SpanList:
    """Records when spans begin and how they end."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        """(name, "begin" | "end" | "error: <type>"), oldest first."""

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """A span; what is no ``Exception`` (a cancellation, a closed generator) ends it regularly."""
        self.seen.append((name, "begin"))
        end = "end"
        try:
            yield
        except Exception as exc:
            end = f"error: {type(exc).__name__}"
            raise
        finally:
            self.seen.append((name, end))

    def ended(self) -> list[tuple[str, str]]:
        """(name, how it ended) in the order of their ends; none may still be open.

        Raises:
            AssertionError: One is open.
        """
        begun = [name for name, what in self.seen if what == "begin"]
        ended = [(name, what) for name, what in self.seen if what != "begin"]
        assert sorted(begun) == sorted(name for name, _ in ended)
        return ended
