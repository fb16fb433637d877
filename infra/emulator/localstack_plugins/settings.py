"""What the process that starts LocalStack tells these plug-ins, in LocalStack's own environment."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PYTHON = "PROCESS_EXECUTOR_PYTHON"
LOGS = "PROCESS_EXECUTOR_LOGS"
MOUNTS = "PROCESS_EXECUTOR_MOUNTS"


@dataclass(frozen=True)
class Settings:
    """How functions are run."""

    python: str = sys.executable
    """The interpreter of every function; its version is the one that the functions are bundled for."""
    logs: Path | None = None
    """Folder with one file a function; without it output is in the emulated CloudWatch Logs only."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Files of this machine by the path at which a function looks for them."""

    @classmethod
    def from_environment(cls) -> "Settings":
        """As the environment says."""
        logs = os.environ.get(LOGS)
        return cls(
            python=os.environ.get(PYTHON, sys.executable),
            logs=Path(logs) if logs else None,
            mounts=json.loads(os.environ.get(MOUNTS, "{}")),
        )
