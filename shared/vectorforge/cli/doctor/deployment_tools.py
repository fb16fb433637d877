"""What ``vectorforge doctor --aws`` finds on this machine: Node, the CDK command line, synthesized code."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from vectorforge.cli.doctor.check import Check
from vectorforge.cli.doctor.deployment_files import Assembly

_LEAST_NODE = 20  # "engines" of aws-cdk-lib 2.275, which runs in Node also when Python calls it
_SUPPORTED_NODE = 22  # https://nodejs.org/en/about/previous-releases
_INSTALL = "npm ci --prefix infra"


def check_tools(project: Path | None) -> Iterator[Check]:
    """Node, and the CDK command line in the version that infra/package.json pins."""
    yield _node()
    if project is None:
        yield Check(
            "cdk", "fail", "this folder is not in a clone of VectorForge", "Run it where cdk.json is."
        )
        return
    yield _cdk(project)


def _node() -> Check:
    name, remedy = "node", f"Install Node.js {_SUPPORTED_NODE} or newer: https://nodejs.org/en/download"
    program = shutil.which("node")
    if program is None:
        return Check(name, "fail", "there is no node on PATH", remedy)
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 - fixed arguments
    except (OSError, subprocess.TimeoutExpired):
        return Check(name, "fail", f"{program} does not run", remedy)
    found = re.fullmatch(r"v(\d+)\.\S+", done.stdout.strip())
    if found is None:
        return Check(name, "fail", f"{program} does not tell its version", remedy)
    version, major = found[0], int(found[1])
    if major < _LEAST_NODE:
        return Check(name, "fail", version, remedy)
    if major < _SUPPORTED_NODE:
        return Check(name, "warn", f"{version} still works, but its support has ended", remedy)
    return Check(name, "ok", version)


def _cdk(project: Path) -> Check:
    """By the files, since starting it takes a second.

    Version 3.0.0 is newer by number only: it reads older assemblies than aws-cdk-lib writes.
    """
    pinned = _version(project / "infra" / "package.json", "devDependencies", "aws-cdk")
    installed = _version(project / "infra" / "node_modules" / "aws-cdk" / "package.json", "version")
    if installed is None:
        return Check("cdk", "fail", f"aws-cdk {pinned} is not installed in infra/", f"Run `{_INSTALL}`.")
    if installed != pinned:
        detail = f"infra/ has aws-cdk {installed}, but needs {pinned}"
        return Check("cdk", "fail", detail, f"Run `{_INSTALL}`.")
    return Check("cdk", "ok", f"aws-cdk {installed}")


def _version(file: Path, *keys: str) -> str | None:
    try:
        found = json.loads(file.read_text())
        for key in keys:
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)


def check_bytecode(assembly: Assembly) -> Check:
    """Whether the functions' code was compiled: Lambda cannot keep what it compiles at each cold start."""
    folders = assembly.code_folders()
    bare = {
        handler: version for handler, (folder, version) in folders.items() if not _compiled(folder, version)
    }
    if not folders:
        detail = "the assembly holds no code, as if made for tests"
        return Check("bytecode", "fail", detail, "Run `make synth` again.")
    if bare:
        versions = " and ".join(sorted(set(bare.values())))
        detail = (
            f"no bytecode for Python {versions} in {len(bare)} of {len(folders)} functions: slow cold starts"
        )
        return Check("bytecode", "warn", detail, f"Run `uv python install {versions}`, then `make synth`.")
    return Check("bytecode", "ok", f"in all {len(folders)} functions")


def _compiled(folder: Path, version: str) -> bool:
    tag = f"cpython-{version.replace('.', '')}"
    return next((folder / "functions").rglob(f"*.{tag}.pyc"), None) is not None
