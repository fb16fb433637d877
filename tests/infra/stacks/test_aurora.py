"""The data stack with Aurora: a writer, readers, and the proxy's read-only endpoint."""

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from aws_cdk import App
from aws_cdk.assertions import Match, Template

from infra.bundling.bundle import ROOT
from infra.costs.bill import idle_bill
from infra.data.data_stack import DataStack
from infra.doctor.account import DeployedStack, check_stacks
from infra.doctor.assembly import read_assembly
from infra.setting_types import SettingsError
from infra.settings import DEV
from infra.stage_settings import StageSettings


def with_aurora(readers: int) -> StageSettings:
    return dataclasses.replace(
        DEV, database=dataclasses.replace(DEV.database, engine="aurora", readers=readers)
    )


@pytest.mark.parametrize("readers", [0, 2])
def test_cluster_has_writer_readers_and_read_only_endpoint(readers: int) -> None:
    stack = DataStack(App(), "Data", stage=with_aurora(readers))
    template = Template.from_stack(stack)
    template.has_resource_properties(
        "AWS::RDS::DBCluster",
        {
            "Engine": "aurora-postgresql",
            "EngineVersion": "17",
            "EnableIAMDatabaseAuthentication": True,
            "ManageMasterUserPassword": True,
            "StorageEncrypted": True,
            "ServerlessV2ScalingConfiguration": {"MinCapacity": 0.5, "MaxCapacity": 4},
        },
    )
    template.resource_count_is("AWS::RDS::DBInstance", 1 + readers)
    template.has_resource_properties(
        "AWS::RDS::DBInstance",
        {"DBInstanceIdentifier": "vectorforge-dev", "DBInstanceClass": "db.serverless", "PromotionTier": 0},
    )
    template.has_resource_properties(
        "AWS::RDS::DBProxyTargetGroup", {"DBClusterIdentifiers": Match.any_value()}
    )
    template.resource_count_is("AWS::RDS::DBProxyEndpoint", int(readers > 0))
    parameters = template.find_resources("AWS::SSM::Parameter").values()
    names = {parameter["Properties"]["Name"] for parameter in parameters}
    assert ("/vectorforge-dev/database/reader-host" in names) == (readers > 0)


def test_bill_of_aurora_has_capacity_of_each_instance() -> None:
    lines = {line.what: line.dollars for line in idle_bill(with_aurora(2))}
    assert lines["Aurora at its least capacity"] == pytest.approx(1.5 * 730 * 0.12)
    assert lines["RDS Proxy"] == pytest.approx(8 * 730 * 0.015)
    assert "RDS PostgreSQL" not in lines


def test_synthesis_says_that_the_engine_cannot_switch_in_place() -> None:
    stack = DataStack(App(), "Data", stage=with_aurora(0))
    notes = [str(entry.data) for entry in stack.database.node.metadata if entry.type == "aws:cdk:info"]
    [told] = [note for note in notes if "cannot switch" in note]
    assert "docs/operate/readers.md#move-from-rds-to-aurora" in told
    assert "## Aurora" in (guide := (ROOT / "docs" / "operate" / "readers.md").read_text())
    assert "### Move from RDS to Aurora" in guide


@pytest.mark.parametrize(
    ("has", "fails"),
    [
        ({"AWS::RDS::DBInstance": 1}, False),
        ({"AWS::RDS::DBCluster": 1, "AWS::RDS::DBInstance": 2}, True),
        ({}, False),
    ],
)
def test_deployed_engine_must_not_change(doctor_assemblies: Path, has: dict[str, int], fails: bool) -> None:
    deployed = {"VectorForge-dev-Data": DeployedStack("UPDATE_COMPLETE", Counter(has))}
    checks = check_stacks(deployed, "dev", read_assembly(doctor_assemblies / "dev", "dev"))
    refused = [check for check in checks if check.status == "fail"]
    assert bool(refused) == fails
    if fails:
        assert 'engine "aurora", and the settings say "rds"' in refused[0].detail
        assert "move-from-rds-to-aurora" in refused[0].remedy


def test_readers_of_rds_are_rejected() -> None:
    with pytest.raises(SettingsError, match=r'readers need engine "aurora"'):
        dataclasses.replace(DEV, database=dataclasses.replace(DEV.database, readers=1))
    with pytest.raises(SettingsError, match="readers must be at most 15"):
        with_aurora(16)
