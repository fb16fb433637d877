"""A failed test is rerun once and reported; many such tests fail the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range({flaky}))
def test_passes_at_the_second_try(number):
    tried = Path(__file__).with_name(f"tried-{{number}}")
    before = tried.exists()
    tried.touch()
    assert before, f"first try of {{number}}"

@pytest.mark.parametrize("number", range({broken}))
def test_never_passes(number):
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("flaky", "broken", "code", "message"),
    [
        (5, 0, 0, "5 flaky tests, at most 5 allowed"),
        (6, 0, 1, "6 flaky tests, at most 5 allowed"),
        (1, 1, 1, "1 failed, 1 passed, 2 rerun"),
    ],
)
def test_rerun_plugin_allows_at_most_five_flaky_tests(
    tmp_path: Path, flaky: int, broken: int, code: int, message: str
) -> None:
    (tmp_path / "test_these.py").write_text(TESTS.format(flaky=flaky, broken=broken))
    plugins = ["-p", "tests.flaky_plugin", "-p", "xdist", "-p", "pytest_rerunfailures"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *plugins,
            "-n1",
            "--reruns=1",
            "--rootdir",
            str(tmp_path),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == code, done.stdout
    assert message in done.stdout
    for number in range(flaky):
        assert f"test_these.py::test_passes_at_the_second_try[{number}]" in done.stdout
        assert f"AssertionError: first try of {number}" in done.stdout
