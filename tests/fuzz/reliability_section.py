"""The section of docs/results/reliability.md that ``make fuzz`` writes, between two markers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "results" / "reliability.md"
BEGIN: Final = "<!-- make fuzz writes from here -->"
END: Final = "<!-- to here -->"
_HEAD: Final = "| fuzzer | amount | guarantee | findings |\n| --- | --- | --- | --- |\n"


@dataclass(frozen=True, slots=True)
class Row:
    """A fuzzer, and what came of it."""

    what: str
    amount: str
    """How many of what, and in which time."""
    means: str
    findings: Sequence[str]
    not_run: bool = False
    """Its ``amount`` says why."""

    def markdown(self) -> str:
        """The line of the table."""
        told = "not run" if self.not_run else str(len(self.findings))
        return f"| {self.what} | {self.amount} | {self.means} | {told} |"


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    return _HEAD + "".join(f"{row.markdown()}\n" for row in rows)


def write(page: Path, rows: Sequence[Row]) -> None:
    """Put the table between the markers of the page; lines of what was not run now stay.

    Raises:
        ValueError: The page has no markers, or not in their order.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} does not hold {BEGIN} and {END}.")
    lines = dict(_lines(old)) | {row.what: row.markdown() for row in rows}
    body = _HEAD + "".join(f"{line}\n" for line in lines.values())
    page.write_text(f"{before}{BEGIN}\n\n{body}\n{END}{after}", encoding="utf-8")


def _lines(old: str) -> Iterator[tuple[str, str]]:
    """The lines of a table, by what they are about."""
    for line in old.splitlines():
        if line.startswith("| ") and line not in _HEAD.splitlines():
            yield line.removeprefix("| ").partition(" |")[0], line
