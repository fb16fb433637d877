"""Bytecode from the cache is that of the same source, and nothing of another version."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from infra.bundling.bytecode import write_bytecode


def run(command: list[str], **environment: str) -> None:
    subprocess.run(command, env=environment, check=True)


def refuse(command: list[str], **_: str) -> None:
    raise AssertionError(f"Compiled: {command}")


def bundle(folder: Path, sources: dict[str, str]) -> Path:
    for name, source in sources.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return folder


def bytecode(folder: Path) -> dict[Path, bytes]:
    return {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*.pyc")}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_cached_package_is_compiled_once(tmp_path: Path) -> None:
    sources = {
        "package/__init__.py": "A = {'a', 'b'}\n",
        "package/inner/module.py": "def f(): raise ValueError\n",
    }
    first, second = bundle(tmp_path / "first", sources), bundle(tmp_path / "second", sources)
    write_bytecode(first, sys.executable, run)
    write_bytecode(second, sys.executable, refuse)
    assert len(bytecode(first)) == 2
    assert bytecode(second) == bytecode(first)
    assert b"/var/task/package/inner/module.py" in b"".join(bytecode(second).values())


def test_changed_package_and_single_module_are_compiled(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "first", {"package/__init__.py": "A = 1\n", "single.py": "A = 1\n"})
    write_bytecode(folder, sys.executable, run)
    changed = bundle(tmp_path / "second", {"package/__init__.py": "A = 2\n", "single.py": "A = 2\n"})
    write_bytecode(changed, sys.executable, run)
    code = "import package, single; print(package.A, single.A)"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=changed, capture_output=True, check=True)
    assert done.stdout == b"2 2\n"
    assert bytecode(changed).keys() == bytecode(folder).keys()


def test_version_that_is_partly_removed_from_cache_is_compiled(tmp_path: Path, cache: Path) -> None:
    sources = {"package/__init__.py": "A = 1\n", "package/inner/module.py": "A = 1\n"}
    first, second = bundle(tmp_path / "first", sources), bundle(tmp_path / "second", sources)
    write_bytecode(first, sys.executable, run)
    next(cache.glob("**/module.*.pyc")).unlink()
    write_bytecode(second, sys.executable, run)
    assert bytecode(second) == bytecode(first)


def test_new_version_stays_in_cache_although_all_others_look_newer(tmp_path: Path, cache: Path) -> None:
    tomorrow = time.time() + 86_400
    for version in range(9):
        folder = bundle(tmp_path / str(version), {"package/__init__.py": f"VERSION = {version}\n"})
        write_bytecode(folder, sys.executable, run)
        for place in cache.glob("vectorforge/bytecode/*/package/*"):
            os.utime(place, (tomorrow, tomorrow))
    last = bundle(tmp_path / "last", {"package/__init__.py": "VERSION = 10\n"})
    write_bytecode(last, sys.executable, run)
    shutil.rmtree(last / "package" / "__pycache__")
    write_bytecode(last, sys.executable, refuse)
    assert bytecode(last)


def test_cache_keeps_eight_versions_of_a_package(tmp_path: Path, cache: Path) -> None:
    for version in range(10):
        folder = bundle(tmp_path / str(version), {"package/__init__.py": f"VERSION = {version}\n"})
        write_bytecode(folder, sys.executable, run)
    assert len(list(cache.glob("vectorforge/bytecode/*/package/*"))) == 8
