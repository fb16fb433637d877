"""Environments of the frameworks, created by uv on first use and separate from this project's."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_SERVER = ("fastapi", "uvicorn", "uvloop", "httptools")
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "raw": ("psycopg[binary,pool]", "pgvector", "numpy", "openai", "aiohttp", "orjson", *_SERVER),
    "langchain": ("langchain", "langchain-openai", "langchain-postgres", "psycopg[binary,pool]", *_SERVER),
    "llamaindex": (
        "llama-index-core",
        "llama-index-vector-stores-postgres",
        "llama-index-llms-openai",
        "llama-index-embeddings-openai",
        "psycopg[binary]",
        *_SERVER,
    ),
    "haystack": ("haystack-ai", "pgvector-haystack", "psycopg[binary]", *_SERVER),
}
"""Newest versions, as people install today. The results include them."""


class InstallationError(Exception):
    """An environment could not be created."""


def interpreter(folder: Path, name: str, note: Callable[[str], None]) -> Path:
    """Return the environment's Python; create it if it is missing or its requirements have changed.

    Args:
        folder: Folder of the environments.
        name: A key of ``REQUIREMENTS``.
        note: Called before long waits.

    Raises:
        InstallationError: uv is missing, or a package cannot be installed.
    """
    place = folder / name
    python = place / "bin" / "python"
    stamp = place / "requirements.sha256"
    wanted = hashlib.sha256(json.dumps(REQUIREMENTS[name]).encode()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    note(f"Installing {', '.join(REQUIREMENTS[name][:3])} ... into {place}")
    uv = os.environ.get("UV", "uv")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    _run(uv, "venv", "--quiet", "--clear", "--python", version, str(place))
    _run(uv, "pip", "install", "--quiet", "--python", str(python), *REQUIREMENTS[name])
    _run(str(python), "-m", "compileall", "-q", str(place / "lib"), check=False)
    stamp.write_text(wanted)
    return python


def versions(python: Path) -> dict[str, str]:
    """Return the installed versions by name."""
    program = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    )
    output = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout
    found: dict[str, str] = json.loads(output)
    return found


def _run(*command: str, check: bool = True) -> None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError as exc:
        raise InstallationError(f"{command[0]} is missing: https://docs.astral.sh/uv/") from exc
    if check and done.returncode:
        raise InstallationError(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-600:]}")
