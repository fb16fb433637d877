"""The database can be replaced: the other stack reads its values from parameters, not from exports."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from infra.app import build
from infra.settings import PROD
from infra.stage_settings import StageSettings

AURORA = dataclasses.replace(
    PROD, stage="aurora", database=dataclasses.replace(PROD.database, engine="aurora", readers=1)
)
_PARAMETER = "AWS::SSM::Parameter"


def templates_of(stage: StageSettings, assembly: Path) -> dict[str, dict[str, Any]]:
    return {
        name: json.loads((assembly / f"VectorForge-{stage.stage}-{name}.template.json").read_text())
        for name in ("Data", "App")
    }


def check(templates: dict[str, dict[str, Any]]) -> set[str]:
    """Check both templates of a stage, and return the names of the values."""
    data, app = templates["Data"], templates["App"]
    exports = {output["Export"]["Name"]: output for output in data["Outputs"].values() if "Export" in output}
    imported = set(re.findall(r'"Fn::ImportValue": "([^"]+)"', json.dumps(app)))
    assert imported
    kinds = {name: data["Resources"][_subject(exports[name])]["Type"] for name in imported}
    assert not {name for name, kind in kinds.items() if kind.startswith("AWS::RDS::")}
    written = {one["Properties"]["Name"] for one in data["Resources"].values() if one["Type"] == _PARAMETER}
    read = {
        one["Default"]
        for one in app["Parameters"].values()
        if one["Type"] == f"{_PARAMETER}::Value<String>" and "database" in one["Default"]
    }
    assert read <= written
    return {name.rpartition("/")[2] for name in read}


def _subject(output: dict[str, Any]) -> str:
    [reference] = output["Value"].values()
    return str(reference if isinstance(reference, str) else reference[0])


def test_no_value_of_database_is_imported(stage: StageSettings, assembly: Path) -> None:
    login = {"proxy-host", "proxy-id"} if stage.database.proxy else set()
    assert check(templates_of(stage, assembly)) == {"host", "resource-id", "owner-secret", *login}


def test_no_value_of_aurora_is_imported(tmp_path: Path) -> None:
    app = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(tmp_path))
    build(app, AURORA)
    app.synth()
    assert "reader-host" in check(templates_of(AURORA, tmp_path))


def test_exports_of_deployed_stages_remain_until_they_are_not_imported(assembly: Path) -> None:
    outputs = templates_of(PROD, assembly)["Data"]["Outputs"]
    subjects = {name: json.dumps(output["Value"]) for name, output in outputs.items() if "Database" in name}
    for attribute in ("Endpoint.Address", "DbiResourceId", "MasterUserSecret.SecretArn", "DBProxyArn"):
        assert any(attribute in value for value in subjects.values())


@pytest.mark.parametrize("stack", ["Data", "App"])
def test_parameters_hold_no_secret(stack: str, assembly: Path) -> None:
    template = templates_of(PROD, assembly)[stack]
    kinds = {one["Properties"]["Type"] for one in template["Resources"].values() if one["Type"] == _PARAMETER}
    assert kinds == ({"String"} if stack == "Data" else set())
