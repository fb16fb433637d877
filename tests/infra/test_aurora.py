"""The data stack with Aurora: a writer, readers, and the proxy's read-only endpoint."""

import dataclasses

import pytest
from aws_cdk import App
from aws_cdk.assertions import Match, Template

from infra.costs.bill import idle_bill
from infra.data.data_stack import DataStack
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


def test_readers_of_rds_are_rejected() -> None:
    with pytest.raises(SettingsError, match=r'readers need engine "aurora"'):
        dataclasses.replace(DEV, database=dataclasses.replace(DEV.database, readers=1))
    with pytest.raises(SettingsError, match="between 0 and 15"):
        with_aurora(16)
