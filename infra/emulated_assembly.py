"""Reads the templates of a cloud assembly (what ``cdk synth`` makes), and writes one with others.

Its files: https://docs.aws.amazon.com/cdk/api/v2/docs/cloud-assembly-schema-readme.html
"""

import hashlib
import json
import os
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

_STACK = "aws:cloudformation:stack"


class AssemblyError(Exception):
    """The folder is no assembly, or a part of it is missing."""


def read_templates(assembly: Path) -> dict[str, dict[str, Any]]:
    """The templates by stack, in the order in which they are deployed.

    Raises:
        AssemblyError: The folder is no assembly.
    """
    artifacts = _read(assembly / "manifest.json")["artifacts"]
    graph = {name: set(artifact.get("dependencies", [])) for name, artifact in artifacts.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as exc:
        raise AssemblyError(f"{assembly}: stacks depend on each other: {exc.args[1]}") from exc
    stacks = {name: artifacts[name] for name in order if artifacts[name]["type"] == _STACK}
    return {name: _read(assembly / stack["properties"]["templateFile"]) for name, stack in stacks.items()}


def write_assembly(assembly: Path, output: Path, templates: Mapping[str, Mapping[str, Any]]) -> None:
    """The same assembly with other templates; the functions' code stays where it is.

    CDK uploads a template under a hash and never twice, so the hashes are made anew.

    Args:
        assembly: The one that was read.
        output: Folder of the new one; files of an earlier one are replaced.
        templates: By stack.

    Raises:
        AssemblyError: A stack or its list of assets is missing.
    """
    output.mkdir(parents=True, exist_ok=True)
    manifest = _read(assembly / "manifest.json")
    artifacts = manifest["artifacts"]
    code = os.path.relpath(assembly.resolve(), output.resolve())
    for name, template in templates.items():
        stack = artifacts[name]["properties"]
        text = json.dumps(template, indent=1)
        (output / stack["templateFile"]).write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        old = Path(stack["stackTemplateAssetObjectUrl"]).stem
        stack["stackTemplateAssetObjectUrl"] = stack["stackTemplateAssetObjectUrl"].replace(old, digest)
        artifacts[name].pop("additionalMetadataFile", None)  # construct paths of resources, some left out
        assets = artifacts[f"{name}.assets"]["properties"]["file"]
        files = _read(assembly / assets)["files"]
        if old not in files:
            raise AssemblyError(f"{assembly / assets} does not list the template {old}.")
        (output / assets).write_text(json.dumps(_with_assets(assembly, assets, code, old, digest)))
    kept = {
        name: artifact
        for name, artifact in artifacts.items()
        if artifact["type"] in (_STACK, "cdk:asset-manifest")
    }
    (output / "manifest.json").write_text(json.dumps({**manifest, "artifacts": kept}))


def _with_assets(assembly: Path, name: str, code: str, old: str, new: str) -> dict[str, Any]:
    """A list of assets in which the template has another hash, and code lies in another folder."""
    listed = _read(assembly / name)
    files = listed["files"]
    for digest, file in files.items():
        if digest != old:
            file["source"]["path"] = f"{code}/{file['source']['path']}"
    moved = json.dumps(files.pop(old)).replace(old, new)
    return {**listed, "files": {**files, new: json.loads(moved)}}


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError as exc:
        raise AssemblyError(f"{file} is not there: cdk synth first.") from exc
    return found
