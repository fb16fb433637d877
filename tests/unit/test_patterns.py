"""Regular expressions compiled on first use."""

import re
import subprocess
import sys

from vectorforge.patterns import pattern_of


def test_pattern_is_compiled_on_first_use_and_only_once() -> None:
    pattern = pattern_of(r"(?P<word>[a-z]+)", re.IGNORECASE)
    assert "search" not in vars(pattern)
    assert pattern.sub("x", "Ab 1") == "x 1"
    assert vars(pattern)["search"] == re.compile(r"(?P<word>[a-z]+)", re.IGNORECASE).search


def test_pattern_has_attributes_of_compiled_pattern() -> None:
    pattern = pattern_of("(a)|b", re.ASCII)
    compiled = re.compile("(a)|b", re.ASCII)
    assert (pattern.pattern, pattern.flags, pattern.groups) == ("(a)|b", compiled.flags, 1)
    assert [match.span() for match in pattern.finditer("ab")] == [(0, 1), (1, 2)]
    assert (pattern.fullmatch("b"), pattern.match("xb")) != (None, compiled.match("b"))
    assert pattern.split("xay") == ["x", "a", "y"]


def test_invalid_pattern_is_rejected_on_first_use() -> None:
    # in a process of its own: all patterns of this one are compiled by other tests
    code = "from vectorforge.patterns import pattern_of; p = pattern_of('('); print('made'); p.search('')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "made\n"
    assert "unterminated subpattern" in done.stderr
