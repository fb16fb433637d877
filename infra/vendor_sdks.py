"""Which vendors' SDKs a stage's functions need, by the settings in ``StageSettings.environment``."""

from collections.abc import Mapping
from typing import Final

VENDOR_SDKS: Final = ("anthropic", "openai", "vertex")
"""Groups ``sdk-<name>`` of pyproject.toml; "vertex" is anthropic with Google's library for credentials."""

_ASKING: Final = {"query": frozenset(VENDOR_SDKS), "ingest": frozenset({"openai"})}
"""What each function can ask vendors over; the ingest function makes vectors only."""


def needed_sdks(function: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the SDKs that a function's bundle must hold; none unless a setting needs them.

    Args:
        function: A folder of ``functions/``.
        environment: The stage's settings.
    """
    needed = {
        "openai": _is_sdk(environment, "OPENAI") or "VECTORFORGE_AZURE_OPENAI_ENDPOINT" in environment,
        "anthropic": _is_sdk(environment, "ANTHROPIC"),
        "vertex": "VECTORFORGE_VERTEX_PROJECT" in environment,
    }
    asking = _ASKING.get(function, frozenset())
    return tuple(name for name in VENDOR_SDKS if needed[name] and name in asking)


def _is_sdk(environment: Mapping[str, str], vendor: str) -> bool:
    return environment.get(f"VECTORFORGE_{vendor}_CLIENT") == "sdk"
