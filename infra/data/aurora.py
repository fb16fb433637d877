"""Aurora PostgreSQL Serverless v2 in place of the RDS instance: a writer, and readers for searches."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Annotations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_rds as rds
from constructs import Construct

from infra.data.network import Network
from infra.stage_settings import StageSettings

_ENGINE = rds.DatabaseClusterEngine.aurora_postgres(version=rds.AuroraPostgresEngineVersion.of("17", "17"))
"""Major version only, as of the instance: AWS installs minor versions itself."""


def make_cluster(
    scope: Construct,
    *,
    stage: StageSettings,
    parameters: Mapping[str, str],
    instance: Mapping[str, Any],
    **shared: Any,
) -> rds.DatabaseCluster:
    """Create the cluster. Its writer has the stage's name, as the instance of RDS does: alarms refer to it.

    Args:
        scope: Parent construct.
        stage: Settings, with ``database.engine`` "aurora".
        parameters: Parameters of PostgreSQL.
        instance: Properties of each instance.
        **shared: Properties that a cluster and an instance of RDS have in common.
    """
    settings = stage.database
    readers = [
        # the first one takes over when the writer fails, so it is as large
        rds.ClusterInstance.serverless_v2(
            f"Reader{number}",
            instance_identifier=f"{stage.prefix}-reader{number}",
            scale_with_writer=number == 1,
            **instance,
        )
        for number in range(1, settings.readers + 1)
    ]
    Annotations.of(scope).add_info(
        f'A deployed stage "{stage.stage}" with engine "rds" cannot switch to "aurora" in place: its data '
        "would not move, and `make deploy` refuses. See docs/operate/readers.md#move-from-rds-to-aurora."
    )
    return rds.DatabaseCluster(
        scope,
        "Cluster",
        cluster_identifier=stage.prefix,
        engine=_ENGINE,
        default_database_name="vectorforge",
        writer=rds.ClusterInstance.serverless_v2("Writer", instance_identifier=stage.prefix, **instance),
        readers=readers,
        serverless_v2_min_capacity=settings.min_acu,
        serverless_v2_max_capacity=settings.max_acu,
        parameter_group=rds.ParameterGroup(
            scope,
            "Parameters",
            engine=_ENGINE,
            description="VectorForge: TLS only, slow statements are logged",
            parameters=dict(parameters),
        ),
        **shared,
    )


def read_only_endpoint(
    scope: Construct,
    proxy: rds.DatabaseProxy,
    *,
    stage: StageSettings,
    network: Network,
    group: ec2.ISecurityGroup,
) -> str:
    """Create the endpoint of the proxy that leads to the readers; RDS Proxy has it for Aurora only."""
    chosen = network.database_subnets
    subnets = network.vpc.select_subnets(
        subnet_group_name=chosen.subnet_group_name, subnet_type=chosen.subnet_type
    )
    endpoint = rds.CfnDBProxyEndpoint(
        scope,
        "ReadOnlyEndpoint",
        db_proxy_endpoint_name=f"{stage.prefix}-reader",
        db_proxy_name=proxy.db_proxy_name,
        vpc_subnet_ids=subnets.subnet_ids,
        vpc_security_group_ids=[group.security_group_id],
        target_role="READ_ONLY",
    )
    endpoint.node.add_dependency(proxy)
    return endpoint.attr_endpoint
