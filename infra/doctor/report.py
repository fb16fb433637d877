"""Result of a check, and the report of all: one line each with its remedy, or one JSON document."""

import dataclasses
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

_COLORS = {"ok": "32", "warn": "33", "fail": "1;31"}
_DIM, _CONTROL = "2", dict.fromkeys((*range(0x20), 0x7F, *range(0x80, 0xA0)))


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
    """Empty when the status is ok."""


def report(checks: Iterable[Check], *, as_json: bool) -> bool:
    """Print checks as they come; return False when one failed."""
    found = []
    for check in checks:
        found.append(check)
        if not as_json:
            _print(check)
    failed = sum(check.status == "fail" for check in found)
    if as_json:
        document = {"ok": not failed, "checks": [dataclasses.asdict(check) for check in found]}
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    elif failed:
        sys.stdout.write(_styled(f"{failed} of {len(found)} checks failed.", _COLORS["fail"]) + "\n")
    return not failed


def _print(check: Check) -> None:
    line = f"{check.name:<12} {check.detail}".translate(_CONTROL)
    sys.stdout.write(f"{_styled(f'{check.status:<5}', _COLORS[check.status])}{line}\n")
    if check.remedy:
        sys.stdout.write(_styled(f"{'':<18}→ {check.remedy}".translate(_CONTROL), _DIM) + "\n")
    sys.stdout.flush()


def _styled(text: str, color: str) -> str:
    """Color a text on a terminal (https://no-color.org)."""
    colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"\033[{color}m{text}\033[0m" if colored else text
