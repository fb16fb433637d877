"""npm packages, installed once for all workers."""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
_MODULES = HERE / "node_modules"


def installed_modules() -> Path:
    """Install the packages of package-lock.json with ``npm ci``; other workers wait for the first one.

    Returns:
        The folder ``node_modules``.
    """
    npm = shutil.which("npm")
    assert npm is not None, "Node.js 20 or newer is missing: https://nodejs.org/en/download"
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = _MODULES / ".installed-lock"
    with (HERE / ".install-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            # esbuild is the only package with an install script, and works without it.
            options = ("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
            subprocess.run([npm, "ci", *options], cwd=HERE, check=True, timeout=600)
            stamp.write_text(wanted)
    return _MODULES
