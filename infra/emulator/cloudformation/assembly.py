"""Cloud assemblies, the output of ``cdk synth``: their templates are read, and written with changes.

Format: https://docs.aws.amazon.com/cdk/api/v2/docs/cloud-assembly-schema-readme.html
"""

import hashlib
import json
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

_STACK = "aws:cloudformation:stack"
_IN_PLACE = "hot-reload"
"""LocalStack's name of a bucket whose keys are folders of this machine."""


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
    """Write an assembly with other templates, whose functions run from the folders of the first one.

    CDK uploads a template under its hash and never twice, so the hashes are computed again.

    Args:
        assembly: The assembly that was read. It must outlive the deployment: it holds the code.
        output: Folder of the new one; files of an earlier one are replaced.
        templates: By stack.

    Raises:
        AssemblyError: A stack or its list of assets is missing.
    """
    output.mkdir(parents=True, exist_ok=True)
    manifest = _read(assembly / "manifest.json")
    artifacts = manifest["artifacts"]
    for name, template in templates.items():
        stack = artifacts[name]["properties"]
        artifacts[name].pop("additionalMetadataFile", None)  # construct paths of resources, some left out
        listing = artifacts[f"{name}.assets"]["properties"]["file"]
        listed = _read(assembly / listing)
        files = listed["files"]
        old = Path(stack["stackTemplateAssetObjectUrl"]).stem
        if old not in files:
            raise AssemblyError(f"{assembly / listing} does not list the template {old}.")
        entry = files.pop(old)
        text = json.dumps(_run_in_place(template, _code_folders(assembly, files)), indent=1)
        digest = hashlib.sha256(text.encode()).hexdigest()
        (output / stack["templateFile"]).write_text(text)
        stack["stackTemplateAssetObjectUrl"] = stack["stackTemplateAssetObjectUrl"].replace(old, digest)
        only = {digest: json.loads(json.dumps(entry).replace(old, digest))}
        (output / listing).write_text(json.dumps({**listed, "files": only}))
    kept = {
        name: artifact
        for name, artifact in artifacts.items()
        if artifact["type"] in (_STACK, "cdk:asset-manifest")
    }
    (output / "manifest.json").write_text(json.dumps({**manifest, "artifacts": kept}))


def _code_folders(assembly: Path, files: Mapping[str, Any]) -> dict[str, Path]:
    """Return the folder of each asset by the key that templates have for it.

    Raises:
        AssemblyError: An asset is not a folder.
    """
    folders = {}
    for key, file in files.items():
        folder = assembly / file["source"]["path"]
        if file["source"]["packaging"] != "zip":
            raise AssemblyError(f"{folder} is an asset of an unknown kind: {file['source']['packaging']}.")
        folders[f"{key}.zip"] = folder.absolute()
    return folders


def _run_in_place(template: Mapping[str, Any], folders: Mapping[str, Path]) -> dict[str, Any]:
    """Let functions run from their folder: LocalStack copies 400 MB through its S3 in half a minute.

    https://docs.localstack.cloud/aws/tooling/lambda-tools/hot-reloading/
    """
    resources = dict(template["Resources"])
    for name, resource in resources.items():
        code = resource.get("Properties", {}).get("Code", {})
        if resource["Type"] == "AWS::Lambda::Function" and code.get("S3Key") in folders:
            place = {"S3Bucket": _IN_PLACE, "S3Key": str(folders[code["S3Key"]])}
            resources[name] = {**resource, "Properties": {**resource["Properties"], "Code": place}}
    return {**template, "Resources": resources}


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError as exc:
        raise AssemblyError(f"{file} is not there: cdk synth first.") from exc
    return found
