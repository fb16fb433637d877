"""Settings of the plug-ins, in an environment variable of LocalStack."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

_VARIABLE = "PROCESS_EXECUTOR"


@dataclass(frozen=True)
class Settings:
    """Interpreter, logs and mounts of functions."""

    python: str = sys.executable
    """Interpreter of every function, of the version that the functions are bundled for."""
    logs: str | None = None
    """Folder with one log for each function; None: emulated CloudWatch Logs only."""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Files of this machine by the path that a function reads."""

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the settings."""
        return cls(**json.loads(os.environ.get(_VARIABLE, "{}")))

    def variables(self) -> dict[str, str]:
        """Return the variable that ``from_environment`` reads."""
        return {_VARIABLE: json.dumps(asdict(self))}
