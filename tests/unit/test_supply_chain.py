"""Installed packages equal the locked ones: hashes, one index, bills of materials, pinned actions."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.bundling.bundle import export_locked, find_uv
from infra.deployment.audit import NPM_LOCKS, bill_of_materials, functions_with_packages
from infra.setting_types import CodeSettings

ROOT = Path(__file__).parents[2]
INDEX = "https://pypi.org/simple"
FILES = "https://files.pythonhosted.org/"
NPM = "https://registry.npmjs.org/"


def unlocked(lock: Mapping[str, Any]) -> list[str]:
    """Return the packages of uv.lock without a SHA-256, or from another index than PyPI."""
    wrong = []
    for package in lock["package"]:
        if package["source"] == {"editable": "."}:
            continue
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        hashed = all(re.fullmatch(r"sha256:[0-9a-f]{64}", file.get("hash", "")) for file in files)
        from_pypi = package["source"] == {"registry": INDEX} and all(
            f["url"].startswith(FILES) for f in files
        )
        if not (files and hashed and from_pypi):
            wrong.append(package["name"])
    return wrong


def test_locked_python_files_have_hashes() -> None:  # security 23
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    assert len(lock["package"]) > 100
    assert unlocked(lock) == []


@pytest.mark.parametrize(
    "change",
    [
        {"wheels": [{"url": f"{FILES}a.whl"}]},
        {"wheels": [{"url": "https://example.org/a.whl", "hash": f"sha256:{'0' * 64}"}]},
        {"source": {"git": "https://example.org/a"}},
        {"wheels": []},
    ],
)
def test_package_without_lock_is_reported(change: dict[str, Any]) -> None:
    good = {"url": f"{FILES}a.whl", "hash": f"sha256:{'0' * 64}"}
    package = {"name": "a", "source": {"registry": INDEX}, "wheels": [good]}
    assert unlocked({"package": [package]}) == []
    assert unlocked({"package": [{**package, **change}]}) == ["a"]


@pytest.mark.parametrize("folder", NPM_LOCKS)
def test_locked_npm_packages_have_hashes(folder: str) -> None:  # security 23
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]
    installed = {name: package for name, package in packages.items() if name and not package.get("inBundle")}
    assert installed
    assert [
        name
        for name, package in installed.items()
        if not (package.get("resolved", NPM).startswith(NPM) and package["integrity"].startswith("sha512-"))
    ] == []


@pytest.mark.parametrize("function", functions_with_packages())
def test_bill_of_materials_matches_bundle(function: str) -> None:  # security 23
    uv = find_uv()
    bill = bill_of_materials(function, uv)
    assert bill["bomFormat"] == "CycloneDX"
    named = {f"{one['name']}=={one['version']}" for one in bill["components"]}
    locked = set(re.findall(r"^[\w.-]+==[\w.]+", export_locked(uv, function, "--no-header"), re.MULTILINE))
    assert named <= locked
    elsewhere = {"colorama", "httpx2-jsfetch", "pywin32", "tzdata"}
    assert {name.partition("==")[0] for name in locked - named} <= elsewhere
    assert all(one["purl"].startswith("pkg:pypi/") for one in bill["components"])
    known = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {ref for entry in bill["dependencies"] for ref in entry.get("dependsOn", ())} <= known


def test_actions_are_pinned_by_commit() -> None:  # security 23
    workflows = list((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    for workflow in workflows:
        used = re.findall(r"uses:\s*(\S+)", workflow.read_text())
        assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)] == []


def test_tested_python_versions_match_metadata_and_lambda() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    sam = (ROOT / "template-local.yaml").read_text()
    named = [classifier.rpartition(" ")[2] for classifier in project["classifiers"]]
    oldest = project["requires-python"].removeprefix(">=")
    assert "bookworm" in workflow["jobs"]["linux"]["container"]["image"]  # Debian 12: Python 3.11
    assert [oldest, *workflow["jobs"]["python"]["strategy"]["matrix"]["python"]] == named
    assert named[0] == oldest == "3.11"
    assert named[-1] == CodeSettings().python_version
    assert re.findall(r"Runtime: python(\S+)", sam) == [CodeSettings().python_version]
