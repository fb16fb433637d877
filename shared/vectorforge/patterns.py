"""Regular expressions that are compiled on first use.

Compiling those of the answer's checks takes 8 % of a cold start, and few of them are for every query.
"""

import re
from typing import Any, Final, cast

_USED: Final = (
    "search",
    "match",
    "fullmatch",
    "finditer",
    "findall",
    "sub",
    "subn",
    "split",
    "pattern",
)
_made: list["_PatternOnUse"] = []


class _PatternOnUse:
    """Stands for a pattern, and has its methods as attributes from the first use on."""

    def __init__(self, text: str, flags: int) -> None:
        self._source = text, flags
        _made.append(self)

    def compile(self) -> re.Pattern[str]:
        compiled = re.compile(*self._source)
        for name in _USED:
            setattr(self, name, getattr(compiled, name))
        return compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compile(), name)


def pattern_of(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern of ``re.compile``, for its methods only; a mistake in it shows on first use."""
    return cast("re.Pattern[str]", _PatternOnUse(text, flags))


def compile_patterns() -> None:
    """Compile all now, in a process that starts ahead of its first request."""
    for pattern in _made:
        pattern.compile()
