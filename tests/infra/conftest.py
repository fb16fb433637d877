"""The functions' bundles, made once a session for the Python and the machine that the tests run on."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from infra.bundling import Bundle, make_bundle
from tests.infra.stack_template import StackTemplate

PLATFORM = f"{platform.machine()}-manylinux_2_34"


@pytest.fixture(scope="session")
def uv() -> str:
    """The program that runs these tests."""
    found = os.environ.get("UV") or shutil.which("uv")
    assert found is not None
    return found


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Bundle]]:
    """Makes the bundle of a function: its folder, and what was reported of it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"

    @cache
    def made(function: str) -> tuple[Path, Bundle]:
        folder = tmp_path_factory.mktemp("bundles") / function
        return folder, make_bundle(function, folder, python_version=version, platform=PLATFORM)

    return made


@pytest.fixture(scope="session")
def bare_python() -> tuple[str, ...]:
    """A Python that sees nothing but its standard library and what PYTHONPATH names."""
    return (sys.executable, "-S", "-P", "-B", "-W", "error")


@pytest.fixture(scope="session")
def bare_environment() -> Callable[..., dict[str, str]]:
    """The environment of a process over a bundle: nothing of ours, and no home."""

    def environment(folder: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        bare = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
        return {**bare, **(variables or {})}

    return environment


@pytest.fixture(scope="session")
def app_templates() -> dict[str, StackTemplate]:
    """The app stack of each stage."""
    from aws_cdk import App
    from aws_cdk.assertions import Template

    from infra.app import build
    from infra.settings import STAGES

    templates = {}
    for name, stage in STAGES.items():
        _, functions = build(App(context={"aws:cdk:bundling-stacks": []}), stage)
        templates[name] = StackTemplate(Template.from_stack(functions).to_json())
    return templates
