"""Bytecode is compiled by a Python of the target's version, from any source."""

import sys
from pathlib import Path

import pytest

from infra.bundling.bundle import Bundle
from infra.bundling.interpreters import find_interpreter

DOWNLOADING_UV = """#!/bin/sh
[ "$1 $2" = "python install" ] || exit 2
folder="$UV_PYTHON_INSTALL_DIR/cpython-3.99.1-linux-x86_64-gnu/bin"
mkdir -p "$folder"
printf '#!/bin/sh\\necho 3.99\\n' > "$folder/python3"
chmod +x "$folder/python3"
"""


def test_current_interpreter_is_used_for_its_version(uv: str) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert find_interpreter(version, uv) == sys.executable


def test_other_interpreter_is_downloaded_into_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "uv"
    program.write_text(DOWNLOADING_UV)
    program.chmod(0o755)
    found = find_interpreter("3.99", str(program))
    assert found is not None
    assert Path(found).is_relative_to(tmp_path / "cache" / "vectorforge" / "python")


def test_bundle_without_interpreter_suggests_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uv: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_interpreter("3.99", uv) is None
    made = Bundle("query", 90_000_000, 0, 5_000_000, "3.99", compiled=False)
    assert "No bytecode: every cold start will compile" in str(made)
    assert "uv python install 3.99" in str(made)
