"""Settings of the plug-ins, in the environment variables of LocalStack."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PYTHON = "PROCESS_EXECUTOR_PYTHON"
_LOGS = "PROCESS_EXECUTOR_LOGS"
_MOUNTS = "PROCESS_EXECUTOR_MOUNTS"


@dataclass(frozen=True)
class Settings:
    """Interpreter, logs and mounts of functions."""

    python: str = sys.executable
    """Interpreter of every function, of the version that the functions are bundled for."""
    logs: Path | None = None
    """Folder with one log for each function; None: emulated CloudWatch Logs only."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Files of this machine by the path that a function reads."""

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the settings."""
        logs = os.environ.get(_LOGS)
        return cls(
            python=os.environ.get(_PYTHON, sys.executable),
            logs=Path(logs) if logs else None,
            mounts=json.loads(os.environ.get(_MOUNTS, "{}")),
        )

    def variables(self) -> dict[str, str]:
        """Return the variables that ``from_environment`` reads."""
        logs = {_LOGS: str(self.logs)} if self.logs else {}
        return {_PYTHON: self.python, _MOUNTS: json.dumps(dict(self.mounts)), **logs}
