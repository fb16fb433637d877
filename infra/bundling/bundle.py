"""Deployment folder of one Lambda function, built without Docker: packages, code, bytecode and data.

The packages are those of the function's group in pyproject.toml (``function-query``, ...) at the versions and
hashes of uv.lock, as wheels for Lambda's platform; nothing is built here, so any machine can bundle for any
other. The same inputs give the same files. Needs uv, and the package index where uv's cache lacks a wheel.
"""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.bundling.bytecode import write_bytecode
from infra.bundling.database_certificates import write_database_certificates
from infra.bundling.interpreters import find_interpreter
from infra.bundling.token_tables import copy_token_tables

ROOT = Path(__file__).resolve().parents[2]

BUDGET_BYTES = {
    "query": 175_000_000,
    "log_writer": 80_000_000,
    "ingest": 180_000_000,
    "migrate": 80_000_000,
    "authorizer": 50_000,
    "probe": 50_000,
}
"""Size limit of each function's folder (26 MB of the query function's for ``mcp``, whose server needs
cryptography); more means that a dependency came in unnoticed."""

OPERATOR = "operator"
"""Bundle of a host: the whole library with its commands, and ``infra/bundling/host``; no function has it."""
BUNDLE_BUDGETS = {**BUDGET_BYTES, OPERATOR: 120_000_000}

SDK_BYTES = {"anthropic": 25_000_000, "openai": 30_000_000, "vertex": 30_000_000}
"""Size limit of each vendor's SDK, added where a stage's settings need it."""

LAMBDA_LIMIT_BYTES = 250 * 1024**2
"""Unzipped, with layers (https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html)."""

COUNTS_TOKENS = frozenset({"query", "ingest"})
"""Functions whose bundle holds tiktoken's tables."""

STANDS_ALONE = frozenset({"authorizer", "probe"})
"""Functions that consist of their handler, and use the standard library and the runtime's boto3 only."""

PYTHON, PLATFORM = "3.14", "aarch64-manylinux_2_34"  # of Amazon Linux 2023, under python3.12 to 3.14
ROOMS_LEFT_OUT = ("cli", "local")
"""Packages of the library that no function imports."""


class BundlingError(Exception):
    """The bundle cannot be built; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A finished bundle; sizes in bytes on disk."""

    function: str
    code_bytes: int
    bytecode_bytes: int
    token_table_bytes: int
    python_version: str
    compiled: bool
    """True if it holds bytecode; otherwise every cold start compiles."""
    sdks: tuple[str, ...] = ()
    """Vendors' SDKs that are in it."""

    @property
    def total_bytes(self) -> int:
        """Size of the folder."""
        return self.code_bytes + self.bytecode_bytes + self.token_table_bytes

    @property
    def budget_bytes(self) -> int:
        """Size limit of the folder."""
        return min(
            BUNDLE_BUDGETS[self.function] + sum(SDK_BYTES[sdk] for sdk in self.sdks), LAMBDA_LIMIT_BYTES
        )

    def __str__(self) -> str:
        parts = [
            f"{self.function}: {_megabytes(self.total_bytes)} MB of {_megabytes(self.budget_bytes)} MB",
            f"code and packages {_megabytes(self.code_bytes)}",
            f"bytecode {_megabytes(self.bytecode_bytes)}",
            f"token tables {_megabytes(self.token_table_bytes)}",
        ]
        if self.compiled:
            return ", ".join(parts)
        version = self.python_version
        return (
            f"{', '.join(parts)}. No bytecode: every cold start will compile, for there is no Python "
            f"{version} here and none could be downloaded. Install one (uv python install {version}) "
            "and bundle again."
        )


def make_bundle(
    function: str,
    output: Path,
    *,
    python_version: str = PYTHON,
    platform: str = PLATFORM,
    sdks: tuple[str, ...] = (),
) -> Bundle:
    """Fill a folder with everything that Lambda needs to run a function.

    Args:
        function: A folder of ``functions/``, or ``OPERATOR``.
        output: Empty, or not there yet.
        python_version: Version of the Lambda runtime, such as "3.14".
        platform: uv's name: "aarch64-manylinux_2_34", "x86_64-manylinux_2_34".
        sdks: Vendors' SDKs besides, of ``SDK_BYTES``.

    Raises:
        BundlingError: There is no such function, the folder is not empty, uv is missing or fails, or the
            result is over its budget.
        DatabaseCertificateError: The database's root certificates cannot be had.
        TokenTableError: tiktoken's tables cannot be had.
    """
    if function not in BUNDLE_BUDGETS:
        raise BundlingError(f"There is no function {function}; there are: {', '.join(BUNDLE_BUDGETS)}.")
    if output.exists() and any(output.iterdir()):
        raise BundlingError(f"{output} is not empty; choose another folder, or empty it.")
    uv = find_uv()
    output.mkdir(parents=True, exist_ok=True)
    if function not in STANDS_ALONE:
        groups = [option for sdk in sdks for option in ("--only-group", f"sdk-{sdk}")]
        requirements = export_locked(uv, function, "--no-header", *groups)
        _install(uv, requirements, output, python_version, platform)
        write_database_certificates(output / "certificates")
    _copy_code(function, output)
    if function in COUNTS_TOKENS:
        copy_token_tables(output / "tiktoken_cache", uv=uv, python=sys.executable)
    interpreter = find_interpreter(python_version, uv)
    if interpreter is not None:
        write_bytecode(output, interpreter, _run)
    _open_to_readers(output)
    return _weighed(function, output, python_version, compiled=interpreter is not None, sdks=sdks)


def export_locked(uv: str, function: str, *options: str) -> str:
    """Export a function's group of uv.lock, as lines of requirements.txt with hashes by default.

    Raises:
        BundlingError: uv failed.
    """
    group = f"function-{function.replace('_', '-')}"
    return _export(uv, "--only-group", group, *options)


def export_everything(uv: str) -> str:
    """Export everything in uv.lock as lines of requirements.txt with hashes.

    Raises:
        BundlingError: uv failed.
    """
    return _export(uv, "--all-extras", "--all-groups", "--no-header")


def _export(uv: str, *options: str) -> str:
    command = [uv, "export", "--project", str(ROOT), "--frozen", "--no-emit-project", "--quiet"]
    return _run([*command, *options])


def _install(uv: str, requirements: str, output: Path, python_version: str, platform: str) -> None:
    command = [uv, "pip", "install", "--quiet", "--requirement", "-", "--target", str(output)]
    command += ["--python", sys.executable, "--python-version", python_version, "--python-platform", platform]
    command += ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--link-mode", "copy"]
    _run(command, requirements)
    shutil.rmtree(output / "bin", ignore_errors=True)  # console scripts; nothing on Lambda runs them
    (output / ".lock").unlink(missing_ok=True)
    (output / "olefile" / "olefile2.py").unlink(missing_ok=True)  # for Python 2, which compileall rejects


def _copy_code(function: str, output: Path) -> None:
    def left_out(folder: str, names: list[str]) -> set[str]:
        is_library = Path(folder) == ROOT / "shared" / "vectorforge" and function != OPERATOR
        return {"__pycache__"} | (set(ROOMS_LEFT_OUT) & set(names) if is_library else set())

    if function not in STANDS_ALONE:
        shutil.copytree(ROOT / "shared" / "vectorforge", output / "vectorforge", ignore=left_out)
    if function == OPERATOR:
        shutil.copytree(ROOT / "infra" / "bundling" / "host", output / "host")
        return
    shutil.copytree(ROOT / "functions" / function, output / "functions" / function, ignore=left_out)
    shutil.copyfile(ROOT / "functions" / "__init__.py", output / "functions" / "__init__.py")


def _open_to_readers(output: Path) -> None:
    """Make every file readable for Lambda's user, whatever the umask is here; keep executable bits."""
    for path in [output, *output.rglob("*")]:
        executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
        path.chmod(0o755 if executable else 0o644)


def _weighed(
    function: str, output: Path, python_version: str, *, compiled: bool, sdks: tuple[str, ...]
) -> Bundle:
    sizes = {path: path.stat().st_size for path in output.rglob("*") if path.is_file()}
    bytecode = sum(size for path, size in sizes.items() if path.suffix == ".pyc")
    tables = sum(size for path, size in sizes.items() if path.parent.name == "tiktoken_cache")
    code = sum(sizes.values()) - bytecode - tables
    bundle = Bundle(function, code, bytecode, tables, python_version, compiled, sdks)
    if bundle.total_bytes > bundle.budget_bytes:
        raise BundlingError(
            f"Over the budget of {_megabytes(bundle.budget_bytes)} MB: {bundle}; see {output}."
        )
    return bundle


def find_uv() -> str:
    """Find the uv that runs this process, the one on PATH, or the one that the Makefile installed."""
    places = (os.environ.get("UV"), shutil.which("uv"), str(ROOT / ".uv" / "bin" / "uv"))
    found = next((place for place in places if place and Path(place).is_file()), None)
    if found is None:
        raise BundlingError("Bundling needs uv: https://docs.astral.sh/uv/getting-started/installation/")
    return found


def _run(command: Sequence[str], standard_input: str | None = None, **environment: str) -> str:
    # CDK sets FORCE_COLOR=0 for what it runs; uv takes any value for a wish, and colours what is parsed here.
    plain = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    finished = subprocess.run(  # noqa: S603 - our own words
        command,
        input=standard_input,
        env={**plain, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        raise BundlingError(f"{' '.join(command)} failed:\n{finished.stderr or finished.stdout}")
    return finished.stdout


def _megabytes(number: int) -> str:
    return f"{number / 1e6:.1f}"
