"""Scripts of this folder as parts: each runs in a separate process and prints JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures.measuring import Table

_FOLDER = Path(__file__).resolve().parent


class ScriptError(Exception):
    """A script failed, and has printed the reason."""


def run(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script, and return its output.

    Args:
        script: File name.
        *arguments: Arguments of its command line.

    Raises:
        ScriptError: The script failed.
    """
    path = os.pathsep.join([str(_FOLDER), str(_FOLDER.parents[1] / "shared")])
    done = subprocess.run(
        [sys.executable, str(_FOLDER / script), *arguments],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode:
        raise ScriptError(f"{script} failed.")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def tables(figures: dict[str, Any]) -> Sequence[Table]:
    """Return the tables in the scripts' JSON output."""
    return [Table(**table) for table in figures["tables"]]
