"""A Python of Lambda's version, for any machine type, to compile bytecode with."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

_DOWNLOAD_S = 120
_SILENCE_S = 5


@cache
def find_interpreter(python_version: str, uv: str) -> str | None:
    """Find a Python of this version: this one, uv's, on PATH or pyenv's; else let uv download one.

    Without a network the download fails at once. It goes into the user's cache, not on PATH.

    Args:
        python_version: Such as "3.14".
        uv: The uv program.

    Returns:
        The path, or None if there is none and the download fails.
    """
    candidates = [sys.executable, *_found_by_uv(python_version, uv)]
    candidates += filter(None, [shutil.which(f"python{python_version}")])
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += map(str, sorted(pyenv.glob(f"{python_version}.*/bin/python")))
    found = next((candidate for candidate in candidates if _is_version(candidate, python_version)), None)
    return found or _downloaded(python_version, uv)


def _found_by_uv(python_version: str, uv: str) -> list[str]:
    command = [uv, "python", "find", "--no-project", "--no-python-downloads", python_version]
    found = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our words
    return [found.stdout.strip()] if found.returncode == 0 else []


def _is_version(interpreter: str, python_version: str) -> bool:
    """Return whether it runs (a shim of pyenv may not) and has this version."""
    code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    try:
        found = subprocess.run([interpreter, "-I", "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return False
    return found.stdout.strip() == python_version


def _downloaded(python_version: str, uv: str) -> str | None:
    home = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "vectorforge" / "python"
    environment = {
        **os.environ,
        "UV_PYTHON_INSTALL_DIR": str(folder),
        "UV_HTTP_TIMEOUT": str(_SILENCE_S),
        "UV_HTTP_RETRIES": "0",
    }
    command = [uv, "python", "install", "--quiet", "--no-bin", python_version]
    try:
        subprocess.run(command, env=environment, capture_output=True, check=False, timeout=_DOWNLOAD_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    made = map(str, sorted(folder.glob(f"cpython-{python_version}.*/bin/python3")))
    return next((interpreter for interpreter in made if _is_version(interpreter, python_version)), None)
