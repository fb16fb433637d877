"""Section of docs/results/reliability.md that ``make fuzz`` writes between two markers."""

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
    """Result of a fuzzer."""

    what: str
    amount: str
    """Amount of work, and its time."""
    means: str
    findings: Sequence[str]
    not_run: bool = False
    """True if it was not run; ``amount`` has the reason."""

    def markdown(self) -> str:
        """Return the row of the table."""
        outcome = "not run" if self.not_run else str(len(self.findings))
        return f"| {self.what} | {self.amount} | {self.means} | {outcome} |"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    return _HEAD + "".join(f"{row.markdown()}\n" for row in rows)


def write(page: Path, rows: Sequence[Row]) -> None:
    """Write the table between the page's markers; rows of fuzzers that did not run stay.

    Raises:
        ValueError: The page lacks the markers, or has them in the wrong order.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    old, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} does not hold {BEGIN} and {END}.")
    lines = dict(_lines(old)) | {row.what: row.markdown() for row in rows}
    body = _HEAD + "".join(f"{line}\n" for line in lines.values())
    page.write_text(f"{before}{BEGIN}\n\n{body}\n{END}{after}", encoding="utf-8")


def _lines(old: str) -> Iterator[tuple[str, str]]:
    """Return the rows of a table by fuzzer."""
    for line in old.splitlines():
        if line.startswith("| ") and line not in _HEAD.splitlines():
            yield line.removeprefix("| ").partition(" |")[0], line
