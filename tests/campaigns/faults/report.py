"""Rows of faults as a table, in the terminal and in docs/results/reliability.md."""

from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.faults.audit import COLUMNS, RowResult
from tests.campaigns.faults.fault import Fault

PAGE = Path(__file__).parents[3] / "docs" / "results" / "reliability.md"


def table(results: Sequence[RowResult], faults: Sequence[type[Fault]]) -> str:
    """Return all rows in Markdown; those that were not run are marked."""
    found = {one.number: one for one in results}
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    for kind in faults:
        result = found.get(kind.number)
        if result is None or result.missing:
            why = "not run" if result is None else f"not covered here: {result.missing}"
            cells = (kind.number, kind.name, why, *[""] * (len(COLUMNS) - 3))
        else:
            cells = result.cells()
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def totals(results: Sequence[RowResult]) -> str:
    """Return one paragraph of totals."""
    not_covered = sum(bool(one.missing) for one in results)
    results = [one for one in results if not one.missing]
    answers = [answer for one in results for answer in one.answers]
    sums = {
        "lost logs": sum(one.lost for one in results),
        "double rows": sum(one.doubled for one in results),
        "requests open half a second after the deadline": sum(len(one.late) for one in results),
        "violations": sum(len(one.violations) for one in results),
        "rows that broke off": sum(bool(one.error) for one in results),
    }
    named = ", ".join(f"{count} {name}" for name, count in sums.items())
    passed = sum(one.passed for one in results)
    return (
        f"{passed} of {len(results)} rows that were run found nothing wrong, {not_covered} are not covered; "
        f"{len(answers):,} requests: {named}."
    )


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace the text between the section's markers in the page.

    Args:
        name: Name in the markers ``<!-- campaign:name -->`` and ``<!-- /campaign:name -->``.
        text: Markdown.
        page: Page with the markers.

    Raises:
        ValueError: The page has no such markers.
    """
    begin, end = f"<!-- campaign:{name} -->\n", f"<!-- /campaign:{name} -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{page} has no section {name!r}.")
    page.write_text(f"{before}{begin}{text.strip()}\n{end}{after}")
