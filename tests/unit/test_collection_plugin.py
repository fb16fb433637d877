"""Workers import in turn, and tests that share an expensive fixture run on one worker, first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = """
import gc
import os
import time
from pathlib import Path

import pytest

HERE = Path({folder!r})
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "none")
if HERE.name == "imported":
    (HERE / f"begun-{{WORKER}}").write_text(repr(time.monotonic()))
    give_up_at = time.monotonic() + 1.5
    while len([*HERE.glob("begun-*")]) < 2 and time.monotonic() < give_up_at:
        time.sleep(0.01)
    (HERE / f"ended-{{WORKER}}").write_text(repr(time.monotonic()))

@pytest.mark.parametrize("number", range({number}))
def test_is_noted(number):
    time.sleep(0.01)
    with (HERE / "order").open("a") as file:
        file.write(f"{{WORKER}} {{Path(__file__).parent.name}}/{{Path(__file__).stem}}\\n")

def test_collected_objects_are_no_candidates_for_collection():
    assert gc.isenabled()
    assert gc.get_freeze_count() > 1000
    assert not any(candidate is test_is_noted for candidate in gc.get_objects())
"""


def run(folder: Path, *options: str) -> None:
    plugins = ["-p", "tests.collection_plugin", "-p", "xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *options, "--rootdir", str(folder), str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def write(root: Path, folder: Path, *names: str, number: int = 2) -> None:
    for name in names:
        file = root / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(TEST.format(folder=str(folder), number=number))


def test_files_of_a_folder_on_one_worker_run_first_and_together(tmp_path: Path) -> None:
    names = ["infra/test_deploy_local.py", "quality/test_a.py", "quality/test_b.py"]
    write(tmp_path, tmp_path, "browser/test_c.py", "browser/test_d.py", *names, number=5)
    run(tmp_path, "--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder", "--import-mode=importlib")
    order = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    of_file = {name: {worker for worker, one in order if one == name} for _, name in order}
    assert {len(workers) for workers in of_file.values()} == {1}
    assert of_file["quality/test_a"] == of_file["quality/test_b"] != of_file["infra/test_deploy_local"]
    assert {name for _, name in order[:4]} == {"infra/test_deploy_local", "quality/test_a"}
    assert len(order) == 25


@pytest.mark.parametrize("options", [["--numprocesses=0"], ["--numprocesses=2", "--dist=load"]])
def test_without_loadfile_all_tests_run(tmp_path: Path, options: list[str]) -> None:
    write(tmp_path, tmp_path, "quality/test_a.py", "quality/test_b.py")
    run(tmp_path, *options, "--import-mode=importlib")
    assert len((tmp_path / "order").read_text().splitlines()) == 4


def test_workers_import_one_after_another(tmp_path: Path) -> None:
    folder = tmp_path / "imported"
    folder.mkdir()
    write(tmp_path, folder, "test_a.py")
    run(tmp_path, "--numprocesses=2", "--dist=loadfile", "--import-mode=importlib")
    times = [
        tuple(float((folder / f"{end}-{worker}").read_text()) for end in ("begun", "ended"))
        for worker in ("gw0", "gw1")
    ]
    first, second = sorted(times)
    assert first[1] <= second[0]
