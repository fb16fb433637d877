"""Runs of ``coverage_guided``, each in a separate process, since libFuzzer ends its process."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_START_S: Final = 120
"""Seconds for imports and instrumentation."""
_SHOWN_BYTES: Final = 400
NO_ATHERIS: Final = (
    ""
    if importlib.util.find_spec("atheris")
    else "atheris is not installed: uv sync --group dev --group fuzz"
)
"""Reason why parsers cannot run here, or an empty string."""
_DONE = re.compile(r"^Done (\d+) runs", re.MULTILINE)
_COUNT = re.compile(r"^#(\d+)\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ParserRun:
    """Result of a run."""

    executions: int
    finding: str
    """The end of libFuzzer's output, and the beginning of the input; empty without a finding."""


def fuzz_parser(name: str, *, seconds: int, seed: int) -> ParserRun:
    """Fuzz one parser for some seconds. An input that takes over 20 s, or over 2 GiB, is a finding, too."""
    with tempfile.TemporaryDirectory(prefix="vf-fuzz-") as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        found = Path(folder, "found-")
        limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", f"-seed={seed}"]
        limits.append(f"-artifact_prefix={found}")
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.coverage_guided", name, str(corpus), *limits],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": f"{_ROOT / 'shared'}:{_ROOT}"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + _START_S,
            check=False,
        )
        inputs = [path.read_bytes() for path in sorted(Path(folder).glob("found-*"))]
    output = done.stdout + done.stderr
    if counts := _DONE.findall(output) or _COUNT.findall(output):
        executions = int(counts[-1])
    else:
        executions = 0
    failed = done.returncode != 0 or not executions
    shown = f"\ninput of {len(inputs[0]):,} bytes: {inputs[0][:_SHOWN_BYTES]!r}" if inputs else ""
    return ParserRun(executions, f"{_last_error(output)}{shown}" if failed else "")


def _last_error(output: str) -> str:
    """Return the exception, or libFuzzer's end."""
    begin = output.find("=== Uncaught Python exception")
    return output[begin : begin + 1500] if begin >= 0 else output[-1500:]
