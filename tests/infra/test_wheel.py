"""Contents of the wheel: the product alone, importable without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = "vectorforge/sample/"
FOREIGN = {"tests", "testing", "infra", "emulator", "functions", "conftest.py", "node_modules", "__pycache__"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, uv: str) -> Path:
    """Build the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


def test_wheel_holds_one_package(names: list[str]) -> None:
    (metadata,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
    assert {name.split("/")[0] for name in names} == {"vectorforge", metadata}


def test_wheel_leaves_out_tests_emulators_and_deployment_tools(names: list[str]) -> None:
    packaged = [name for name in names if not name.startswith(SAMPLE)]
    assert [name for name in packaged if FOREIGN & set(PurePosixPath(name).parts)] == []
    assert [name for name in packaged if PurePosixPath(name).name.startswith("test_")] == []


def test_wheel_holds_the_folders_of_the_library(names: list[str]) -> None:
    library = ROOT / "shared" / "vectorforge"
    folders = {file.parent.relative_to(library.parent).as_posix() for file in library.rglob("*.py")}
    packaged = {str(PurePosixPath(name).parent) for name in names if name.endswith(".py")}
    assert packaged == {folder for folder in folders if not folder.endswith("__pycache__")}


def test_wheel_holds_markdown_in_the_sample_only(names: list[str]) -> None:
    markdown = {name for name in names if name.endswith(".md") and ".dist-info/" not in name}
    assert markdown
    assert all(name.startswith(SAMPLE) for name in markdown)
    assert f"{SAMPLE}README.md" in markdown


def test_doctor_aws_of_an_installed_wheel_asks_for_a_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path / "installed")
    path = f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r}); "
    code = f"{path}from vectorforge.cli.app import run; sys.exit(run(['doctor', '--aws']))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "--aws needs a checkout of VectorForge" in done.stderr
