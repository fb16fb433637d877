"""Cloud assemblies are read, and written with the emulator's templates."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from infra.deployment.synth import templates
from infra.emulator.cloudformation.assembly import write_assembly
from infra.emulator.deployment.cdk import Cdk


@pytest.fixture
def assembly(tmp_path: Path) -> Path:
    """Write an assembly like ``cdk synth``: one stack that needs another, and a function's code."""
    folder = tmp_path / "cdk.out"
    (folder / "asset.abc" / "package").mkdir(parents=True)
    (folder / "asset.abc" / "package" / "wrapper").write_text("#!/bin/sh\n")
    (folder / "asset.abc" / "package" / "wrapper").chmod(0o755)
    artifacts: dict[str, Any] = {"Tree": {"type": "cdk:tree", "properties": {"file": "tree.json"}}}
    stacks: dict[str, Any] = {
        "App": {
            "Resources": {
                "Query": {
                    "Type": "AWS::Lambda::Function",
                    "Properties": {"VpcConfig": {}, "Code": {"S3Bucket": "b", "S3Key": "abc.zip"}},
                }
            }
        },
        "Data": {"Resources": {"Proxy": {"Type": "AWS::RDS::DBProxy", "Properties": {}}}},
    }
    for name, template in stacks.items():
        text = json.dumps(template)
        digest = hashlib.sha256(text.encode()).hexdigest()
        (folder / f"{name}.template.json").write_text(text)
        source = {"path": f"{name}.template.json", "packaging": "file"}
        files = {digest: {"source": source, "destinations": {"here": {"objectKey": f"{digest}.json"}}}}
        if name == "App":
            files["abc"] = {"source": {"path": "asset.abc", "packaging": "zip"}, "destinations": {"here": {}}}
        (folder / f"{name}.assets.json").write_text(json.dumps({"version": "55.0.0", "files": files}))
        artifacts[f"{name}.assets"] = {
            "type": "cdk:asset-manifest",
            "properties": {"file": f"{name}.assets.json"},
        }
        artifacts[name] = {
            "type": "aws:cloudformation:stack",
            "properties": {
                "templateFile": f"{name}.template.json",
                "stackTemplateAssetObjectUrl": f"s3://bucket/{digest}.json",
            },
            "additionalMetadataFile": f"{name}.metadata.json",
            "dependencies": [f"{name}.assets", *(["Data"] if name == "App" else [])],
        }
    (folder / "manifest.json").write_text(json.dumps({"version": "55.0.0", "artifacts": artifacts}))
    return folder


def cdk(folder: Path) -> Cdk:
    return Cdk(folder, folder / "cdk.log", "dev")


def test_written_assembly_names_what_it_holds(assembly: Path, tmp_path: Path) -> None:
    turning = cdk(tmp_path)
    assert assembly == turning.production
    assert "dropped 1:" in turning.turn({})
    output = turning.emulated
    artifacts = json.loads((output / "manifest.json").read_text())["artifacts"]
    assert sorted(artifacts) == ["App", "App.assets", "Data", "Data.assets"]
    for name in ("App", "Data"):
        digest = hashlib.sha256((output / f"{name}.template.json").read_bytes()).hexdigest()
        assert artifacts[name]["properties"]["stackTemplateAssetObjectUrl"] == f"s3://bucket/{digest}.json"
        files = json.loads((output / f"{name}.assets.json").read_text())["files"]
        assert files[digest]["destinations"]["here"]["objectKey"] == f"{digest}.json"
        assert files[digest]["source"]["path"] == f"{name}.template.json"
        assert list(files) == [digest]


def test_function_of_a_written_assembly_runs_from_the_folder_of_its_bundle(
    assembly: Path, tmp_path: Path
) -> None:
    write_assembly(assembly, tmp_path / "out", templates(assembly))
    written = templates(tmp_path / "out")["App"]["Resources"]["Query"]["Properties"]
    code = {"S3Bucket": "hot-reload", "S3Key": str(assembly / "asset.abc")}
    assert written == {"VpcConfig": {}, "Code": code}
