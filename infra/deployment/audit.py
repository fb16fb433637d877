"""``make audit``: bills of materials of the functions, and known vulnerabilities of what the lock files name.

    python -m infra.deployment.audit
    python -m infra.deployment.audit --offline

Bills go to ``sbom/``. Vulnerabilities are looked up by pip-audit (PyPI's advisories) for each function's
group and for everything in uv.lock, and by ``npm audit`` for every package-lock.json; both need the network.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker

from infra.bundling.bundle import (
    BUNDLE_BUDGETS,
    ROOT,
    STANDS_ALONE,
    BundlingError,
    export_everything,
    export_locked,
    find_uv,
)

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
"""The environment that ``infra.bundling.bundle`` installs for (https://peps.python.org/pep-0508/#environment-markers)."""
_MARKER: Final = "uv:package:marker"


def functions_with_packages() -> list[str]:
    """Return the functions that ship packages, and the operator's bundle."""
    return sorted(set(BUNDLE_BUDGETS) - STANDS_ALONE)


def bill_of_materials(function: str, uv: str) -> dict[str, Any]:
    """Return the CycloneDX 1.5 document of a function.

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
    """Write the document of each function; return the number of packages of each.

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


NPM_LOCKS: Final = ("infra", "tests/clients")
"""Folders with a package-lock.json: the CDK command, and clients for the tests. No function ships them."""
_UNKNOWN, _VULNERABLE = 2, 1
_EXPLANATION = """
exit code: 0 nothing is known, 1 there are vulnerabilities, 2 something could not be looked up
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bills, look everything up, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.deployment.audit",
        description=(__doc__ or "").partition("\n")[0],
        epilog=_EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--offline", action="store_true", help="only write the bills of materials")
    parser.add_argument("--output", type=Path, default=ROOT / "sbom", help="folder of the bills (sbom)")
    options = parser.parse_args(arguments)
    try:
        uv = find_uv()
        for function, packages in write_bills(options.output, uv).items():
            _say(f"{options.output.name}/{function}.cdx.json: {packages} packages")
        if options.offline:
            return 0
        return max(_look_up_all(uv))
    except BundlingError as exc:
        sys.stderr.write(f"{exc}\n")
        return _UNKNOWN


def _look_up_all(uv: str) -> Iterator[int]:
    """Yield the exit code of each look-up, after its result is printed."""
    for function in functions_with_packages():
        yield _told(f"function {function}", _audit_python(export_locked(uv, function)))
    yield _told("everything in uv.lock", _audit_python(export_everything(uv)))
    for folder in NPM_LOCKS:
        yield _told(f"npm {folder}", _audit_npm(ROOT / folder))


def _told(what: str, status: int) -> int:
    said = {0: "nothing known", _VULNERABLE: "VULNERABLE, see above"}
    _say(f"{what}: {said.get(status, 'could not be looked up, see above')}")
    return status


def _audit_python(requirements: str) -> int:
    """Return 0, 1 or 2 as the exit code."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements)
        file.flush()
        command = [sys.executable, "-m", "pip_audit", "--requirement", file.name, "--require-hashes"]
        command += ["--disable-pip", "--strict", "--progress-spinner", "off"]
        done = _run(command)
    if done.returncode == 0:
        return 0
    # With --strict a package that the service does not know ends it with the same code as a vulnerability.
    return _VULNERABLE if "known vulnerabilit" in done.stderr else _UNKNOWN


def _audit_npm(folder: Path) -> int:
    npm = shutil.which("npm")
    if npm is None:
        _say("npm is missing: https://nodejs.org/en/download")
        return _UNKNOWN
    done = _run([npm, "audit", "--package-lock-only", "--prefix", str(folder)])
    if done.returncode == 0:
        return 0
    return _UNKNOWN if "endpoint returned an error" in done.stderr else _VULNERABLE


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    _say(done.stdout + done.stderr[-1000:])
    return done


def _say(text: str) -> None:
    sys.stdout.write(f"{text.strip()}\n")


if __name__ == "__main__":
    sys.exit(main())
