"""What a newcomer is promised: the command for the tests, the guides, and what is installed."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_one_command_checks_everything() -> None:
    make = shutil.which("make")
    assert make is not None
    done = subprocess.run(
        [make, "--dry-run", "-C", str(ROOT), "test", f"UV={sys.executable}"],
        capture_output=True,
        text=True,
        check=True,
    )
    run = [line.partition("--all-extras ")[2] for line in done.stdout.splitlines() if " run " in line]
    assert [command.split(" --")[0] for command in run] == [
        "ruff check .", "ruff format", "lint-imports", "mypy", "pytest",
    ]  # fmt: skip
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert settings["mypy"]["strict"]
    assert settings["pytest"]["ini_options"]["filterwarnings"] == ["error"]


def test_the_guides_are_there() -> None:  # B-046
    assert "make test" in (ROOT / "AGENTS.md").read_text()
    described = (ROOT / "docs" / "http-api.md").read_text()
    for word in ("/v1/rag/query", "`k`", "filters", "temperature", "include_context", "retrieval_stats"):
        assert word in described, word


def test_the_heavy_packages_of_the_designs_are_nobody_s_duty() -> None:  # B-045, C36
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    everyone_s = {line.split(">")[0].split("[")[0].split("=")[0].strip() for line in project["dependencies"]}
    assert {"fastapi", "pydantic"} <= everyone_s
    assert not everyone_s & {"sentence-transformers", "torch", "qdrant-client", "chromadb"}
