"""Outline of a PDF (its bookmarks): the titles that the author calls headings, whatever their font."""

import re
from typing import Any, Final

_MAX_TITLES: Final = 20_000
_MAX_LEVEL: Final = 6
_NUMBER: Final = re.compile(
    r"(?:(?:chapter|part|appendix|section|kapitel|teil|anhang|chapitre|annexe)\s+)?"
    r"(?:\d{1,3}|[A-Z]|[IVXLC]{1,6})(?:\.\d{1,3})*[.:)]?\s+(?=\S)",
    re.IGNORECASE,
)


class Outline:
    """Headings by page and title; empty for a PDF without an outline.

    Args:
        pdf: The opened document.
    """

    def __init__(self, pdf: Any) -> None:
        self._levels: dict[tuple[int, str], int] = {}
        self._above = 0
        for item, _ in zip(pdf.get_toc(), range(_MAX_TITLES), strict=False):
            target = item.get_dest()
            page = target.get_index() if target is not None else None
            if page is not None:
                for key in _keys(item.get_title()):
                    self._levels.setdefault((page + 1, key), min(item.level + 1, _MAX_LEVEL))

    def level(self, page: int, text: str, by_font: int | None) -> int | None:
        """Return the level of a heading, 1 to 6, or None for other text; called in the document's order.

        Args:
            page: Page number, from 1.
            text: Text of a block.
            by_font: Level by the block's font, None if that is no heading's. Such a heading that the outline
                does not have is below the last one that it has.
        """
        if self._levels:
            found = next((level for key in _keys(text) if (level := self._levels.get((page, key)))), None)
            if found is not None:
                self._above = found
                return found
        return None if by_font is None else min(max(by_font, self._above + 1), _MAX_LEVEL)


def _keys(title: str) -> list[str]:
    """Return what a title is compared by: its letters and digits, with and without its number."""
    plain = " ".join(title.split())
    keys = ["".join(re.findall(r"\w+", text.casefold())) for text in (plain, _NUMBER.sub("", plain, count=1))]
    return [key.replace("_", "") for key in dict.fromkeys(keys) if key]
