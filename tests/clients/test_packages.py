"""The packages installed for these tests are those that the examples require."""

import json

from tests.clients.npm import HERE

EXAMPLE = HERE.parents[1] / "examples" / "use-chat" / "package.json"


def test_example_versions_match_tested_versions() -> None:
    named = json.loads(EXAMPLE.read_text())
    tested = json.loads((HERE / "package.json").read_text())["devDependencies"]
    for name, version in (named["dependencies"] | named["devDependencies"]).items():
        assert tested[name] == version


def test_npm_packages_are_pinned_by_hash() -> None:
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
    assert packages["node_modules/ai"]["integrity"].startswith("sha512-")
    assert [path for path, package in packages.items() if path and "integrity" not in package] == []
