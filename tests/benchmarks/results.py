"""Measurements as JSON: one file for each part, so that parts can be repeated separately."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Results:
    """The files of a folder.

    Args:
        folder: Created with the first result.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, part: str, figures: Any, settings: Mapping[str, Any]) -> None:
        """Store a part's figures with the settings, machine and time of the measurement."""
        self._folder.mkdir(parents=True, exist_ok=True)
        record = {"part": part, "measured": measured(), "settings": dict(settings), "figures": figures}
        path = self._folder / f"{part}.json"
        building = path.with_suffix(".new")
        building.write_text(json.dumps(record, indent=1) + "\n")
        building.replace(path)

    def read(self, part: str) -> dict[str, Any] | None:
        """Return a part's last record, or None."""
        path = self._folder / f"{part}.json"
        if not path.exists():
            return None
        record: dict[str, Any] = json.loads(path.read_text())
        return record

    def commit_of(self, part: str) -> str | None:
        """Return the commit of a part's last measurement, or None."""
        record = self.read(part)
        return None if record is None else str(record["measured"]["commit"])


def measured() -> dict[str, Any]:
    """Return time, machine, commit and load of a measurement."""
    return {
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        "commit": commit(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": [round(value, 1) for value in os.getloadavg()],
    }


def commit() -> str:
    """Return the checked-out commit, with a plus if files have changed; empty outside of a clone."""
    folder = Path(__file__).parent
    try:
        head = _git("rev-parse", "--short=10", "HEAD", folder=folder)
        changed = _git(
            "status", "--porcelain", "--untracked-files=no", "--", "shared", folder=folder / "../.."
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def _git(*arguments: str, folder: Path) -> str:
    done = subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, cwd=folder)
    return done.stdout.strip()
