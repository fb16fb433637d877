"""A tracer that records its spans in a list."""

from collections.abc import Iterator
from contextlib import contextmanager

from vectorforge.telemetry import QueryTrace, SpanName


class SpanList:
    """Records when spans begin and how they end."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        """(name, "begin" | "end" | "error: <type>"), oldest first."""

    @contextmanager
    def span(self, name: SpanName, trace: QueryTrace) -> Iterator[None]:
        """Record a span, ended regularly by cancellation and generator close, else by its error."""
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
        """Return (name, ending) in the order of the endings; no span may be open.

        Raises:
            AssertionError: A span is open.
        """
        begun = [name for name, what in self.seen if what == "begin"]
        ended = [(name, what) for name, what in self.seen if what != "begin"]
        assert sorted(begun) == sorted(name for name, _ in ended)
        return ended
