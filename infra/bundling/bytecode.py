"""Bytecode of a bundle; each package is compiled once for all bundles, and cached."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_TASK_ROOT = "/var/task"
_VERSIONS = 8
"""Cached versions of a package; the library has one with every commit."""


def write_bytecode(output: Path, interpreter: str, run: Callable[..., object]) -> None:
    """Ship bytecode: Lambda's code folder is read-only, so that each cold start would compile everything.

    Args:
        output: The bundle.
        interpreter: A Python of the target's version, of any machine type.
        run: Runs a command with further environment variables; raises if it fails.
    """
    cache = _cache(interpreter)
    packages = {file.relative_to(output).parts[0] for file in output.glob("*/**/*.py")}
    places = {output / name: cache / name / _fingerprint(output / name) for name in packages}
    for package, place in places.items():
        with suppress(OSError):  # it is not there, or another process removes it
            shutil.copytree(place, package, dirs_exist_ok=True)
    missing = [package for package in places if not _is_compiled(package)]
    if paths := [*missing, *output.glob("*.py")]:  # without paths it would compile the standard library
        _compile(interpreter, output, paths, run)
    for package in missing:
        with suppress(OSError):  # another process was first, or removed the folder
            _store(package, places[package])


def _cache(interpreter: str) -> Path:
    """Return the folder of an interpreter, whose real path has its version in uv's and pyenv's folders."""
    home = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "vectorforge" / "bytecode"
    return folder / hashlib.sha256(os.path.realpath(interpreter).encode()).hexdigest()[:16]


def _fingerprint(package: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"\n{file.relative_to(package)} {file.stat().st_size}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _is_compiled(package: Path) -> bool:
    return len(list(package.rglob("__pycache__/*.pyc"))) == len(list(package.rglob("*.py")))


def _compile(interpreter: str, output: Path, paths: list[Path], run: Callable[..., object]) -> None:
    """Compile with "unchecked-hash", because zip files and layers change modification times."""
    command = [interpreter, "-I", "-m", "compileall", "-q", "-j", "0"]
    command += ["--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(output), "-p", _TASK_ROOT, *map(str, paths)]  # tracebacks show Lambda's paths
    run(command, PYTHONHASHSEED="0")  # else sets of constants come out in any order


def _store(package: Path, place: Path) -> None:
    """Move a copy of a package's bytecode into the cache: other bundles may be made at the same time."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        made = Path(folder) / "made"
        for file in package.rglob("__pycache__/*.pyc"):
            copy = made / file.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        made.rename(place)  # fails if there is a folder with files
    others = [each for each in place.parent.iterdir() if each != place]
    for old in sorted(others, key=lambda each: each.stat().st_mtime)[: 1 - _VERSIONS]:
        shutil.rmtree(old, ignore_errors=True)
