"""What each Lambda function ships, as a CycloneDX bill of materials: ``make audit`` writes them to ``sbom/``.

uv writes the bill of the function's group in uv.lock, with every file's hash; here what Lambda's platform
does not install is taken out of it. Needs uv, and no network.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker

from infra.bundling import BUDGET_BYTES, STANDS_ALONE, export_locked

LAMBDA: Final[Mapping[str, str]] = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "aarch64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.14.0",
    "python_version": "3.14",
    "sys_platform": "linux",
}
"""The environment that ``infra.bundling`` installs for (https://peps.python.org/pep-0508/#environment-markers)."""
_MARKER: Final = "uv:package:marker"


def functions_with_packages() -> list[str]:
    """The functions that ship more than their own code and the standard library."""
    return sorted(set(BUDGET_BYTES) - STANDS_ALONE)


def bill_of_materials(function: str, uv: str) -> dict[str, Any]:
    """The CycloneDX 1.5 document of a function.

    Args:
        function: One of ``functions_with_packages``.
        uv: Path of uv.

    Raises:
        BundlingError: uv failed.
    """
    bill: dict[str, Any] = json.loads(export_locked(uv, function, "--format", "cyclonedx1.5"))
    shipped = [component for component in bill["components"] if _is_shipped(component)]
    known = {component["bom-ref"] for component in shipped}
    known.add(bill["metadata"]["component"]["bom-ref"])
    dependencies = [
        {**entry, "dependsOn": [ref for ref in entry.get("dependsOn", []) if ref in known]}
        for entry in bill["dependencies"]
        if entry["ref"] in known
    ]
    return {**bill, "components": shipped, "dependencies": dependencies}


def write_bills(folder: Path, uv: str) -> dict[str, int]:
    """Write the document of each function; returns how many packages each ships.

    Raises:
        BundlingError: uv failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    for function in functions_with_packages():
        bill = bill_of_materials(function, uv)
        counts[function] = len(bill["components"])
        (folder / f"{function}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    return counts


def _is_shipped(component: Mapping[str, Any]) -> bool:
    markers = [one["value"] for one in component.get("properties", ()) if one["name"] == _MARKER]
    return all(Marker(marker).evaluate(dict(LAMBDA)) for marker in markers)
