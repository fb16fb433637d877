"""The commands for checks and tests, the guides, and the installed packages."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vectorforge.extras import EXTRAS

ROOT = Path(__file__).parents[2]


def commands_of(target: str, *variables: str) -> list[str]:
    """Return the commands that a target of the Makefile runs in the development environment."""
    make = shutil.which("make")
    assert make is not None
    done = subprocess.run(
        [make, "--dry-run", "-C", str(ROOT), target, f"UV={sys.executable}", *variables],
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKEOVERRIDES", "PYTEST_ARGS")},
    )
    return [
        line.partition("--group dev --all-extras ")[2] for line in done.stdout.splitlines() if " run " in line
    ]


@pytest.mark.parametrize("target", ["check", "test"])
def test_make_target_runs_every_check(target: str) -> None:
    commands = commands_of(target)
    assert [command.split(" --")[0] for command in commands] == [
        "ruff check .", "ruff format", "lint-imports", "mypy", "pytest",
    ]  # fmt: skip
    assert ("tests/unit" in commands[-1]) == (target == "check")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert settings["mypy"]["strict"]
    assert settings["pytest"]["ini_options"]["filterwarnings"] == ["error"]


def test_mypy_reads_every_imported_module_of_the_cdk() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    [read] = [one["module"] for one in overrides if one.get("follow_imports") == "normal"]
    files = [path for folder in ("infra", "tests/infra") for path in (ROOT / folder).rglob("*.py")]
    pattern = re.compile(r"^ *from aws_cdk(?: import (aws_\w+)|\.(\w+) import)", re.MULTILINE)
    found = pattern.findall("".join(path.read_text() for path in files))
    assert {f"aws_cdk.{one or other}" for one, other in found} == set(read) - {"aws_cdk"}


def test_only_the_ci_script_reruns_failed_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    (rerun,) = re.findall(r'^exec make "\$\{1:-test\}" (\S+)$', script, re.MULTILINE)
    for target in ("test", "slow-tests"):
        assert "--reruns" not in commands_of(target)[-1]
        assert "--reruns=1" in commands_of(target, rerun)[-1]


def test_every_test_has_a_target_and_a_job() -> None:
    options = [shlex.split(commands_of(target)[-1]) for target in ("test", "slow-tests")]
    assert [given[given.index("-m") + 1] for given in options] == ["not slow", "slow"]
    assert len({tuple(word for word in given if "slow" not in word) for given in options}) == 1
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "target: [test, slow-tests]" in workflow
    assert ".ci/run ${{ matrix.target }}" in workflow


# Only the locked packages of the service, whichever command is first
def test_uv_run_and_make_run_install_same_packages() -> None:
    make, uv = shutil.which("make"), os.environ.get("UV") or shutil.which("uv")
    assert make is not None
    assert uv is not None

    def exported(*options: str) -> str:
        command = [uv, "export", "--no-hashes", "--no-header", *options]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    printed = subprocess.run(
        [make, "--dry-run", "-C", str(ROOT), "run", f"UV={sys.executable}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = re.search(r" run (--.*) vectorforge up", printed)
    assert found is not None
    plain = exported("--frozen")
    assert exported(*found[1].split()) == plain
    assert "uvicorn==" in plain
    assert "pytest==" not in plain


def test_documented_commands_never_start_with_bare_vectorforge() -> None:
    bare = re.compile(r"^(?:    )?vectorforge [a-z].*", re.MULTILINE)
    found = {
        page.relative_to(ROOT).as_posix(): bare.findall(page.read_text())
        for page in (ROOT / "docs").rglob("*.md")
    }
    in_code = {name: lines for name, lines in found.items() if lines and "/decisions/" not in name}
    assert in_code == {}


def test_agents_and_api_guides_contain_required_terms() -> None:  # B-046
    assert "make test" in (ROOT / "AGENTS.md").read_text()
    described = (ROOT / "docs" / "use" / "http-api.md").read_text()
    for word in ("/v1/rag/query", "`k`", "filters", "temperature", "include_context", "retrieval_stats"):
        assert word in described, word


def test_heavy_packages_are_not_required_dependencies() -> None:  # B-045, C36
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    everyone_s = {line.split(">")[0].split("[")[0].split("=")[0].strip() for line in project["dependencies"]}
    assert {"fastapi", "pydantic"} <= everyone_s
    assert not everyone_s & {"sentence-transformers", "torch", "qdrant-client", "chromadb"}


def test_extras_name_the_packages_of_the_project() -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    imported: dict[str, set[str]] = {}
    for package, distributions in packages_distributions().items():
        for distribution in distributions:
            imported.setdefault(canonicalize_name(distribution), set()).add(package)
    named = {package for packages in EXTRAS.values() for package in packages}
    for extra, packages in EXTRAS.items():
        lines = [Requirement(line) for line in optional[extra]]
        required = {line.name: imported[canonicalize_name(line.name)] for line in lines if not line.marker}
        assert [name for name, modules in required.items() if not modules & named] == []
        assert set(packages) <= set().union(*required.values())
