"""PostgreSQL with pgvector, behind RDS Proxy if the stage has one, with IAM authentication throughout."""

from typing import Any, cast
from urllib.parse import quote

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_rds as rds
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.connection_budget import IDLE_S
from infra.constructs.arns import named_arn
from infra.constructs.encryption import allow_key, customer_key
from infra.constructs.python_function import PythonFunction
from infra.constructs.retention import log_group
from infra.data.aurora import make_cluster, read_only_endpoint
from infra.data.network import Network
from infra.data.published_values import PublishedValues, proxy_id
from infra.stage_settings import StageSettings

DATABASE = "vectorforge"
APP_ROLE = "vectorforge_app"
LOG_WRITER_ROLE = "vectorforge_log_writer"
OWNER_ROLE = "vectorforge_owner"

_PORT = 5432
_REFUSED_TOKENS = "iam-db-auth-error"
"""https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.Troubleshooting.html"""
_ROOTS = "/var/task/certificates"  # infra/bundling/database_certificates.py
_ENGINE = rds.DatabaseInstanceEngine.postgres(version=rds.PostgresEngineVersion.VER_17)
"""Major version only: RDS installs minor versions itself, and cannot downgrade to one named here."""
_SLOW_STATEMENT_MS = 500
_PARAMETERS = {
    "rds.force_ssl": "1",
    "ssl_min_protocol_version": "TLSv1.2",
    "log_min_duration_statement": str(_SLOW_STATEMENT_MS),
    "log_parameter_max_length": "0",  # bound values are tenants' texts
    "log_lock_waits": "1",
    # For blue/green upgrades to the next major version. Turned on later, it would need a restart.
    "rds.logical_replication": "1",
}


class Database(Construct):
    """The instance in isolated subnets, and its proxy, past which only the migrate function reaches it.

    Attributes:
        instance: The instance, or the cluster of Aurora.
        arn: Its ARN.
        resource_id: Its id in ARNs of its users.
        proxy: The proxy; None: every function reaches the instance.
        group: Security group of the instance.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: StageSettings, network: Network
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self._network = network
        self._key = customer_key(self, stage)
        clients = "its proxy and migrations" if stage.database.proxy else "functions"
        self.group = self._group("InstanceGroup", f"PostgreSQL: reached by {clients}")
        self._client_server = self.group
        self.instance: rds.DatabaseInstance | rds.DatabaseCluster
        if stage.database.engine == "aurora":
            self.instance = cluster = self._make_cluster()
            self.arn, self.resource_id = cluster.cluster_arn, cluster.cluster_resource_identifier
            endpoint, self._target = cluster.cluster_endpoint, rds.ProxyTarget.from_cluster(cluster)
        else:
            self.instance = instance = self._make_instance()
            # It is made here, so it has an id.
            self.arn, self.resource_id = instance.instance_arn, cast("str", instance.instance_resource_id)
            endpoint, self._target = instance.instance_endpoint, rds.ProxyTarget.from_instance(instance)
        self._host = endpoint.hostname
        self.proxy: rds.DatabaseProxy | None = None
        if stage.database.proxy:
            self._client_server = self._group(
                "ProxyGroup", "RDS Proxy: reached by functions, reaches PostgreSQL"
            )
            # CDK lets its group reach the instance's; twice would be an error.
            self.proxy = self._make_proxy(self._client_server)
        self._values = PublishedValues(self, "Values", stage)
        self._publish()
        if self.proxy and stage.database.readers:
            reader_host = read_only_endpoint(
                self, self.proxy, stage=stage, network=network, group=self._client_server
            )
            self._values.publish("reader-host", reader_host)

    def _publish(self) -> None:
        # RDS manages the master user's password, so there is a secret; only the migrate function reads it.
        secret = cast("secretsmanager.ISecret", self.instance.secret).secret_arn
        self._values.publish("host", self._host)
        self._values.publish("resource-id", self.resource_id)
        self._values.publish("owner-secret", secret)
        if self.proxy is not None:
            self._values.publish("proxy-host", self.proxy.endpoint)
            self._values.publish("proxy-id", proxy_id(self.proxy.db_proxy_arn))
        # Deployed stages import these until their next deployment, which no longer does.
        for exported in (self._host, self.resource_id, secret):
            Stack.of(self).export_value(exported)
        if self.proxy is not None:
            Stack.of(self).export_value(self.proxy.endpoint)
            Stack.of(self).export_value(self.proxy.db_proxy_arn)

    def value(self, client: Construct, name: str) -> str:
        """Return a value of the database for a construct of any stack.

        Args:
            client: The construct.
            name: "host" and "resource-id" of the instance or the cluster, "owner-secret", "proxy-host",
                "proxy-id", or "reader-host", the read-only endpoint of the proxy.
        """
        return self._values.seen_from(client, name)

    def client_url(self, client: Construct, role: str) -> str:
        """Return the URL of a role, without a password, which is a token created for each connection.

        At the instance, the server ends idle connections: a frozen or ended process does not. Libpq reads the
        root certificates for each connection, so the URL names the few of the region.
        """
        if self.proxy is not None:
            host = self.value(client, "proxy-host")
            return f"postgresql://{role}@{host}:{_PORT}/{DATABASE}?{_tls('proxy.pem')}"
        host, region = self.value(client, "host"), Stack.of(self).region
        options = quote(f"-c idle_session_timeout={IDLE_S * 1000}")
        return f"postgresql://{role}@{host}:{_PORT}/{DATABASE}?{_tls(f'rds-{region}.pem')}&options={options}"

    def instance_url(self, client: Construct) -> str:
        """Return the URL of the migrate function at the instance; ``owner-secret`` has user and password."""
        return f"postgresql://{self.value(client, 'host')}:{_PORT}/{DATABASE}?{_tls('database.pem')}"

    @property
    def subnet_group(self) -> str:
        """Name of the subnets' group."""
        [found] = [one for one in self.node.find_all() if isinstance(one, rds.CfnDBSubnetGroup)]
        return found.ref

    def client_group(self, construct_id: str, description: str, *, direct: bool = False) -> ec2.SecurityGroup:
        """Create the security group of one function, with access to the database and to HTTPS hosts.

        It is part of this stack because two stacks must not depend on each other.

        Args:
            construct_id: Id of the group.
            description: Description of the group.
            direct: To the instance, past the proxy.
        """
        group = self._group(construct_id, description)
        _connect(group, self.group if direct else self._client_server)
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "AWS services and vendors")
        if self._stage.network.egress == "dual_stack":
            group.add_egress_rule(ec2.Peer.any_ipv6(), ec2.Port.tcp(443), "AWS services and vendors")
        return group

    def allow_login(self, client: PythonFunction, role: str) -> None:
        """Let a function log in as a role of the database, to the proxy or else to the instance."""
        server = self.value(client, "proxy-id" if self.proxy is not None else "resource-id")
        client.allow("rds-db:connect", on=[self.user_arn(role, server)])

    def allow_owner_login(self, role: iam.Role) -> None:
        """Let a role log in to the instance, past the proxy, as its master user.

        With its password in a secret at first, and with a token once the database's roles have
        ``rds_iam``, which PostgreSQL then counts as the master user's, too.
        """
        secret, owner = "secretsmanager:GetSecretValue", self.value(role, "owner-secret")
        user = self.user_arn(OWNER_ROLE, self.value(role, "resource-id"))
        for action, resource in ((secret, owner), ("rds-db:connect", user)):
            role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[resource]))
        allow_key(role, self._stage, secret)

    def _group(self, construct_id: str, description: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(
            self, construct_id, vpc=self._network.vpc, description=description, allow_all_outbound=False
        )

    def _make_cluster(self) -> rds.DatabaseCluster:
        settings = self._stage.database
        cluster = make_cluster(
            self,
            stage=self._stage,
            parameters=_PARAMETERS,
            instance=self._server_properties(),
            backup=rds.BackupProps(
                retention=Duration.days(settings.backup_days), preferred_window=settings.backup_window
            ),
            cloudwatch_logs_exports=["postgresql"],
            **self._database_properties(),
        )
        self._add_logs(cluster, Logs=f"cluster/{self._stage.prefix}/postgresql")
        return cluster

    def _make_instance(self) -> rds.DatabaseInstance:
        settings = self._stage.database
        instance = rds.DatabaseInstance(
            self,
            "Instance",
            instance_identifier=self._stage.prefix,
            engine=_ENGINE,
            database_name=DATABASE,
            instance_type=ec2.InstanceType(settings.instance_type),
            multi_az=settings.multi_az,
            storage_type=rds.StorageType.GP3,
            allocated_storage=settings.storage_gib,
            max_allocated_storage=settings.max_storage_gib,
            backup_retention=Duration.days(settings.backup_days),
            preferred_backup_window=settings.backup_window,
            cloudwatch_logs_exports=["postgresql", _REFUSED_TOKENS],
            database_insights_mode=rds.DatabaseInsightsMode.STANDARD
            if settings.performance_insights
            else None,
            parameter_group=rds.ParameterGroup(
                self,
                "Parameters",
                engine=_ENGINE,
                description="VectorForge: TLS only, slow statements are logged",
                parameters=self._parameters(),
            ),
            **self._database_properties() | self._server_properties(),
        )
        prefix = f"instance/{self._stage.prefix}"
        self._add_logs(instance, Logs=f"{prefix}/postgresql", LoginLogs=f"{prefix}/{_REFUSED_TOKENS}")
        return instance

    def _database_properties(self) -> dict[str, Any]:
        """Return the properties that an instance and a cluster have in common."""
        settings = self._stage.database
        return {
            "credentials": rds.Credentials.from_username(OWNER_ROLE, encryption_key=self._key),
            "manage_master_user_password": True,
            "iam_authentication": True,
            "vpc": self._network.vpc,
            "vpc_subnets": self._network.database_subnets,
            "security_groups": [self.group],
            "storage_encrypted": True,
            "storage_encryption_key": self._key,
            "preferred_maintenance_window": settings.maintenance_window,
            "deletion_protection": settings.deletion_protection,
            "removal_policy": RemovalPolicy.SNAPSHOT,
            "copy_tags_to_snapshot": True,
        }

    def _server_properties(self) -> dict[str, Any]:
        """Return the properties of an instance, also of one in a cluster."""
        settings = self._stage.database
        return {
            "ca_certificate": rds.CaCertificate.RDS_CA_RSA2048_G1,
            "auto_minor_version_upgrade": True,
            "preferred_maintenance_window": settings.maintenance_window,
            "enable_performance_insights": settings.performance_insights,
            "performance_insight_encryption_key": self._key if settings.performance_insights else None,
        }

    def _parameters(self) -> dict[str, str]:
        if self._stage.database.proxy:
            return _PARAMETERS
        return {**_PARAMETERS, "max_connections": str(self._stage.database.max_connections)}

    def _add_logs(self, database: Construct, **names: str) -> None:
        """Create the log groups before RDS does, which would never expire their lines."""
        days = self._stage.database.log_retention_days
        for construct_id, name in names.items():
            group = log_group(self, construct_id, self._stage, f"/aws/rds/{name}", days=days)
            database.node.add_dependency(group)

    def _make_proxy(self, group: ec2.SecurityGroup) -> rds.DatabaseProxy:
        role = iam.Role(
            self,
            "ProxyRole",
            assumed_by=iam.ServicePrincipal("rds.amazonaws.com"),
            description="Lets RDS Proxy log in to PostgreSQL with IAM",
        )
        proxy = rds.DatabaseProxy(
            self,
            "Proxy",
            db_proxy_name=self._stage.prefix,
            proxy_target=self._target,
            default_auth_scheme=rds.DefaultAuthScheme.IAM_AUTH,
            iam_auth=True,
            require_tls=True,
            role=role,
            vpc=self._network.vpc,
            vpc_subnets=self._network.database_subnets,
            security_groups=[group],
            max_connections_percent=self._stage.database.proxy_max_connections_percent,
            borrow_timeout=Duration.seconds(8),  # less than VECTORFORGE_DATABASE_TIMEOUT_S
            idle_client_timeout=Duration.minutes(30),
        )
        self._add_logs(proxy, ProxyLogs=f"proxy/{self._stage.prefix}")
        self._open_way_before_targets(proxy)
        # CDK leaves this out: https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-iam-setup.html
        users = [self.user_arn(name, self.resource_id) for name in (APP_ROLE, LOG_WRITER_ROLE)]
        role.add_to_policy(iam.PolicyStatement(actions=["rds-db:connect"], resources=users))
        return proxy

    def _open_way_before_targets(self, proxy: rds.DatabaseProxy) -> None:
        """Create the security rules first: CloudFormation waits until the proxy reaches the instance."""
        rules = [
            rule
            for group in (self.group, self._client_server)
            for rule in group.node.find_all()
            if isinstance(rule, ec2.CfnSecurityGroupIngress | ec2.CfnSecurityGroupEgress)
        ]
        for target_group in proxy.node.find_all():
            if isinstance(target_group, rds.CfnDBProxyTargetGroup):
                target_group.node.add_dependency(*rules)

    def user_arn(self, name: str, server: str) -> str:
        """Return the ARN of a role of the database, for ``rds-db:connect`` to a server by its id."""
        return named_arn(self, "rds-db", "dbuser", f"{server}/{name}")


def _tls(roots: str) -> str:
    return f"sslmode=verify-full&sslrootcert={_ROOTS}/{roots}"


def _connect(client: ec2.SecurityGroup, server: ec2.SecurityGroup) -> None:
    """Allow one group to reach the other's PostgreSQL port, with a rule on both sides."""
    client.add_egress_rule(server, ec2.Port.tcp(_PORT), "PostgreSQL")
    server.add_ingress_rule(client, ec2.Port.tcp(_PORT), "PostgreSQL")
