"""Python clients in environments of their own, installed once for all workers, and scripts that use them.

Their versions of the openai package exclude each other's and this project's.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "python"


def installed_environment(name: str) -> Path:
    """Install the packages of ``python/<name>.txt`` with uv; other workers wait for the first one.

    Returns:
        The folder of its programs.
    """
    requirements = SCRIPTS / f"{name}.txt"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vectorforge-client-tests"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / f"{name}-{wanted[:12]}-{sys.version_info.minor}"
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "installed").exists():
            uv = os.environ.get("UV", "uv")
            subprocess.run([uv, "venv", "-q", "--clear", "-p", sys.executable, place], check=True)
            python = place / "bin" / "python"
            subprocess.run([uv, "pip", "sync", "-q", "-p", python, requirements], check=True, timeout=600)
            (place / "installed").touch()
    return place / "bin"


async def run_client(name: str, *arguments: Any, program: str = "python", **environment: str) -> Any:
    """Run a program of an environment, and return the JSON on its last line of output.

    Args:
        name: Environment, and with Python also the script ``python/<name>.py``.
        *arguments: Values, passed as JSON; texts as they are.
        program: Another program of the environment.
        **environment: Its variables in addition to ``PATH``.
    """
    place = await asyncio.to_thread(installed_environment, name)
    script = [str(SCRIPTS / f"{name}.py")] if program == "python" else []
    values = [value if isinstance(value, str) else json.dumps(value) for value in arguments]
    process = await asyncio.create_subprocess_exec(
        place / program,
        *script,
        *values,
        stdin=subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **environment},
    )
    async with asyncio.timeout(60):
        output, errors = await process.communicate()
    assert process.returncode == 0, (output + errors).decode()
    return json.loads(output.decode().strip().splitlines()[-1])
