"""Result of one check of ``vectorforge doctor``, shared by all its checks."""

from dataclasses import dataclass
from typing import Literal

from vectorforge.cli.terminal import Terminal

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str = ""
    """Action that fixes it; empty when it is ok."""

    def print(self, terminal: Terminal) -> None:
        """Print the result on one line, and the remedy on a second one."""
        label = (f"{self.status:<5}", _STYLES[self.status])
        terminal.line(f"{self.name:<12} {self.detail}", label=label)
        if self.remedy:
            terminal.line(f"{'':<18}→ {self.remedy}", style="dim")
