"""Cloud assemblies, the output of ``cdk synth``, are written with other templates.

Format: https://docs.aws.amazon.com/cdk/api/v2/docs/cloud-assembly-schema-readme.html
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_KEPT = ("aws:cloudformation:stack", "cdk:asset-manifest")
_IN_PLACE = "hot-reload"
"""LocalStack's name of a bucket whose keys are folders of this machine."""


def write_assembly(assembly: Path, output: Path, templates: Mapping[str, Mapping[str, Any]]) -> None:
    """Write an assembly with other templates, whose functions run from the folders of the first one.

    CDK uploads a template under its hash and never twice, so the hashes are computed again.

    Args:
        assembly: The assembly that was read. It must outlive the deployment: it holds the code.
        output: Folder of the new one; files of an earlier one are replaced.
        templates: By stack.
    """
    output.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((assembly / "manifest.json").read_text())
    artifacts = manifest["artifacts"]
    for name, template in templates.items():
        stack = artifacts[name]["properties"]
        artifacts[name].pop("additionalMetadataFile", None)  # construct paths of resources, some left out
        listing = artifacts[f"{name}.assets"]["properties"]["file"]
        listed = json.loads((assembly / listing).read_text())
        old = Path(stack["stackTemplateAssetObjectUrl"]).stem
        entry = listed["files"].pop(old)
        folders = {
            f"{key}.zip": (assembly / file["source"]["path"]).absolute()
            for key, file in listed["files"].items()
        }
        text = json.dumps(_run_in_place(template, folders), indent=1)
        digest = hashlib.sha256(text.encode()).hexdigest()
        (output / stack["templateFile"]).write_text(text)
        stack["stackTemplateAssetObjectUrl"] = stack["stackTemplateAssetObjectUrl"].replace(old, digest)
        only = {digest: json.loads(json.dumps(entry).replace(old, digest))}
        (output / listing).write_text(json.dumps({**listed, "files": only}))
    kept = {name: artifact for name, artifact in artifacts.items() if artifact["type"] in _KEPT}
    (output / "manifest.json").write_text(json.dumps({**manifest, "artifacts": kept}))


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
