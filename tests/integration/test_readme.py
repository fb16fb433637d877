"""The README's examples, run unchanged against a real server."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vectorforge.local.postgres import EmbeddedPostgres

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PRINTED_URL = "http://localhost:8000"
VECTORFORGE = Path(sys.executable).with_name("vectorforge")


@pytest.fixture(scope="module")
def url(private_dir: Callable[[str], Path], short_sample: dict[str, str]) -> Iterator[str]:
    """Run ``vectorforge up`` with a sample on a free port."""
    folder = private_dir("readme")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    process = subprocess.Popen(
        [VECTORFORGE, "up", "--port", "0", "--json"],
        env={**inherited, "VECTORFORGE_DATA_DIR": str(folder / "data"), **short_sample},
        text=True,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        announced = json.loads(process.stdout.readline())
        assert "sample" in json.loads(process.stdout.readline())
        yield announced["url"]
    finally:
        process.terminate()
        process.communicate(timeout=60)
        EmbeddedPostgres(folder / "data" / "postgres").stop(force=True)


def run(command: list[str], code: str) -> str:
    done = subprocess.run([*command, code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_curl_commands_return_answer_and_stream(url: str) -> None:  # B-044
    whole, streamed = re.findall(r"^    (curl .*?\\\n.*?)$", README, re.MULTILINE)
    answer = json.loads(run(["bash", "-c"], whole.replace(PRINTED_URL, url)))
    assert answer["citations"]
    for citation in answer["citations"]:
        label = answer["response"][citation["start"] : citation["end"]]
        assert label == f"[Context {citation['source_number']}]"
        quoted = answer["response"][: citation["start"]].rpartition("]")[2].split()
        text = answer["context"][citation["source_number"] - 1]["text"]
        # Quoted without the targets of links and the marks of bold type and code.
        passage = re.sub(r"\*\*|`", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)).split()
        assert " ".join(quoted) in " ".join(passage)
    events = re.findall(
        r"^event: (\w+)$", run(["bash", "-c"], streamed.replace(PRINTED_URL, url)), re.MULTILINE
    )
    assert events[:3] == ["meta", "sources", "token"]
    assert events[-2:] == ["usage", "done"]


def test_readme_python_code_runs(url: str) -> None:
    code, _ = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    printed = run([sys.executable, "-c"], code.replace(PRINTED_URL, url)).splitlines()
    assert "tenant" in printed[0]
    assert printed[-1].endswith(".md")


def test_readme_openai_code_runs(url: str) -> None:
    _, code = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    printed = run([sys.executable, "-c"], code.replace(PRINTED_URL, url)).splitlines()
    cited = [line for line in printed if f"{url}/source?chunk=" in line]
    assert cited
    assert printed[-len(cited) :] == cited  # after the answer, which may have several lines
    assert re.search(r"\[\d\]", "\n".join(printed[: -len(cited)]))


def test_readme_browser_code_runs_in_node(url: str) -> None:
    (code,) = re.findall(r"^```js\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    code = code.replace('fetch("/v1', f'fetch("{url}/v1')
    printed = run(["node", "--input-type=module", "-e"], code)
    assert "event: token" in printed
    assert "event: done" in printed
