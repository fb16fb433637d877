"""The VPC: functions in private subnets, the database in isolated ones, no ingress."""

from aws_cdk import Annotations, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.bedrock import named_models
from infra.constructs.encryption import customer_key
from infra.costs.bill import egress_bill, total
from infra.setting_types import ExistingVpc, NetworkSettings
from infra.stage_settings import StageSettings
from infra.vendor_addresses import without_known_ipv6

_ZONES = 2  # RDS and its proxy want two; more cost more NAT gateways and endpoints


class Network(Construct):
    """Two zones, egress by ``NetworkSettings.egress``, and no ingress from the internet.

    Attributes:
        vpc: The VPC, created or ``NetworkSettings.existing``.
        function_subnets: Subnets of Lambda's network interfaces.
        database_subnets: Subnets of the instance and its proxy, without a route to the internet.
    """

    def __init__(self, scope: Construct, construct_id: str, stage: StageSettings) -> None:
        super().__init__(scope, construct_id)
        settings = stage.network
        if settings.existing is not None:
            self.vpc: ec2.IVpc = _existing(self, settings.existing)
            self.function_subnets = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS)
            self.database_subnets = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
            return
        self.vpc = self._create(settings, stage.prefix)
        self.function_subnets = ec2.SubnetSelection(subnet_group_name="functions")
        self.database_subnets = ec2.SubnetSelection(subnet_group_name="database")
        if settings.egress == "none":
            self._add_endpoints(stage)
        if settings.flow_logs:
            self._log_rejected_packets(stage)
        self._explain_egress(stage)

    def _create(self, settings: NetworkSettings, name: str) -> ec2.Vpc:
        dual_stack = settings.egress == "dual_stack"
        functions = (
            ec2.SubnetType.PRIVATE_ISOLATED
            if settings.egress == "none"
            else ec2.SubnetType.PRIVATE_WITH_EGRESS
        )
        subnets = [
            ec2.SubnetConfiguration(name="functions", subnet_type=functions, cidr_mask=20),
            ec2.SubnetConfiguration(
                name="database", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=26
            ),
        ]
        if settings.egress == "nat":
            subnets.append(
                ec2.SubnetConfiguration(
                    name="nat",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=28,
                    map_public_ip_on_launch=False,
                )
            )
        return ec2.Vpc(
            self,
            "Vpc",
            vpc_name=name,
            availability_zones=list(settings.zones) or None,
            max_azs=None if settings.zones else _ZONES,
            nat_gateways=settings.nat_gateways,
            ip_protocol=ec2.IpProtocol.DUAL_STACK if dual_stack else ec2.IpProtocol.IPV4_ONLY,
            create_internet_gateway=settings.egress == "nat",
            subnet_configuration=subnets,
            # Free of charge; uploads and CloudFormation's answers do not pay for NAT.
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)
            },
        )

    def _explain_egress(self, stage: StageSettings) -> None:
        """Print at synthesis what NAT costs and why it is there, or which vendors IPv6 may not reach."""
        unknown, notes = ", ".join(without_known_ipv6(stage.environment)), Annotations.of(self)
        named = f"No source in infra/vendor_addresses.py says that {unknown} has IPv6 addresses"
        if stage.network.egress == "dual_stack" and unknown:
            notes.add_warning_v2(
                "vectorforge:ipv6-unknown",
                f'{named}, and the stage "{stage.stage}" has IPv6 egress only. `make deploy` looks them up; '
                'without IPv6 set egress to "nat", or choose other vendors in environment.',
            )
        elif stage.network.egress == "nat":
            dollars = f"${total(egress_bill(stage)):.2f} a month"
            reason = f"{named}." if unknown else 'Every vendor has IPv6: egress "dual_stack" would be free.'
            notes.add_info(f'The stage "{stage.stage}" has NAT gateways, which cost {dollars}. {reason}')

    def _add_endpoints(self, stage: StageSettings) -> None:
        """Add endpoints of the AWS services that functions call, each billed by zone and hour."""
        services = {
            "SecretsManager": ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
            "Sqs": ec2.InterfaceVpcEndpointAwsService.SQS,
        }
        if stage.otel is not None and stage.otel.endpoint is None:
            services["XRay"] = ec2.InterfaceVpcEndpointAwsService.XRAY
        if named_models(stage):
            services["Bedrock"] = ec2.InterfaceVpcEndpointAwsService.BEDROCK
            services["BedrockRuntime"] = ec2.InterfaceVpcEndpointAwsService.BEDROCK_RUNTIME
        for name, service in services.items():
            self.vpc.add_interface_endpoint(name, service=service, subnets=self.function_subnets)

    def _log_rejected_packets(self, stage: StageSettings) -> None:
        group = logs.LogGroup(
            self,
            "FlowLogs",
            encryption_key=customer_key(self, stage),
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.vpc.add_flow_log(
            "Rejected",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(group),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
        )


def _existing(scope: Construct, vpc: ExistingVpc) -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=vpc.id,
        availability_zones=list(vpc.zones),
        private_subnet_ids=list(vpc.function_subnets),
        isolated_subnet_ids=list(vpc.database_subnets),
    )
