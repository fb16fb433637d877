"""Reads the templates of a cloud assembly (what ``cdk synth`` makes), and writes one with others.

Functions' code is packed here and not by CDK, whose best compression costs the most of a local deployment.
Its files: https://docs.aws.amazon.com/cdk/api/v2/docs/cloud-assembly-schema-readme.html
"""

import hashlib
import json
import zipfile
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
    """The same assembly with other templates and packed code.

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
    packed: set[Path] = set()
    for name, template in templates.items():
        stack = artifacts[name]["properties"]
        text = json.dumps(template, indent=1)
        (output / stack["templateFile"]).write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        old = Path(stack["stackTemplateAssetObjectUrl"]).stem
        stack["stackTemplateAssetObjectUrl"] = stack["stackTemplateAssetObjectUrl"].replace(old, digest)
        artifacts[name].pop("additionalMetadataFile", None)  # construct paths of resources, some left out
        assets = artifacts[f"{name}.assets"]["properties"]["file"]
        packed |= _write_assets(assembly / assets, output / assets, old, digest)
    for archive in set(output.glob("*.zip")) - packed:
        archive.unlink()
    kept = {
        name: artifact
        for name, artifact in artifacts.items()
        if artifact["type"] in (_STACK, "cdk:asset-manifest")
    }
    (output / "manifest.json").write_text(json.dumps({**manifest, "artifacts": kept}))


def _write_assets(listing: Path, output: Path, old: str, new: str) -> set[Path]:
    """Write a list of assets in which the template has another hash and code is packed; the archives."""
    listed = _read(listing)
    files = listed["files"]
    if old not in files:
        raise AssemblyError(f"{listing} does not list the template {old}.")
    template = json.loads(json.dumps(files.pop(old)).replace(old, new))
    packed = {_pack(listing.parent, output.parent, file["source"]) for file in files.values()}
    output.write_text(json.dumps({**listed, "files": {**files, new: template}}))
    return packed


def _pack(assembly: Path, output: Path, source: dict[str, str]) -> Path:
    """Put an asset into the new assembly, a folder as an archive, and say so in ``source``."""
    path = assembly / source["path"]
    if source["packaging"] != "zip":
        raise AssemblyError(f"{path} is an asset of a kind that is not known here: {source['packaging']}.")
    archive = output / f"{path.name}.zip"  # the name has the content's hash
    if not archive.exists():
        unfinished = archive.with_suffix(".new")
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as opened:
            for file in sorted(path.rglob("*")):
                opened.write(file, file.relative_to(path))
        unfinished.replace(archive)
    source.update(path=archive.name, packaging="file")
    return archive


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError as exc:
        raise AssemblyError(f"{file} is not there: cdk synth first.") from exc
    return found
