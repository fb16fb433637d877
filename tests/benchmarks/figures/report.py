"""Reports of the scripts on stdout."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from figures.measuring import Table


def machine() -> str:
    """Describe the time, the machine and its load."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{now}; {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}; load average {load}"
    )


def print_report(where: str, tables: Sequence[Table], *, as_json: bool) -> None:
    """Print Markdown, or JSON for programs, to stdout."""
    if as_json:
        result: dict[str, Any] = {"machine": where, "tables": [table.as_json() for table in tables]}
        json.dump(result, sys.stdout, indent=1)
        print()
        return
    print(f"{where}\n")
    for table in tables:
        print(table.markdown())
