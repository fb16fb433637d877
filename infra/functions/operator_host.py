"""Hosts in the VPC for operators, and for work that exceeds a function's 15 minutes; free while none runs."""

from aws_cdk import Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.bundling.bundle import ROOT
from infra.constructs.arns import named_arn
from infra.constructs.function_code import operator_tools
from infra.constructs.python_function import ALIAS, PythonFunction
from infra.data.data_stack import DataStack
from infra.data.database import APP_ROLE, DATABASE, OWNER_ROLE
from infra.stage_settings import StageSettings

HOST_HOURS = 8
TASK_HOURS = 48
"""A host powers off after these at the latest, and a host that powers off is terminated."""

_SIZES = {"arm64": "t4g.small", "x86_64": "t3a.small"}
_DISK_GIB = 8
_IMAGE = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{}"
"""Amazon Linux 2023, under Lambda's runtimes as well, so that the functions' wheels run on it."""
_AGENT = [
    "ssm:UpdateInstanceInformation", "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel",
]  # fmt: skip
"""https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-create-iam-instance-profile.html"""
_SCRIPT = ROOT / "infra" / "bundling" / "user_data.sh"


class OperatorHost(Construct):
    """A launch template, from which ``make operator`` and the migrate function start hosts.

    A host logs in to the instance as the owner of the schema or as the app, with tokens of IAM. It has no
    ingress: operators come through Session Manager.

    Attributes:
        template: The launch template.
    """

    def __init__(self, scope: Construct, construct_id: str, *, stage: StageSettings, data: DataStack) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        self._migrate_arn = named_arn(self, "lambda", "function", f"{stage.prefix}-migrate:{ALIAS}")
        self._role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description=f"What hosts of {stage.prefix} may do",
        )
        tools = operator_tools(self, stage.code)
        self._allow_work(data, tools.bucket.bucket_arn)
        place = data.places["migrate"]
        subnet = place.vpc.select_subnets(
            subnet_group_name=place.subnets.subnet_group_name, subnet_type=place.subnets.subnet_type
        ).subnet_ids[0]
        profile = iam.CfnInstanceProfile(self, "Profile", roles=[self._role.role_name])
        user_data = self._user_data(data, tools.s3_bucket_name, tools.s3_object_key)
        # CDK's tags reach the template's own resource type only, which has none.
        tags = {"Name": f"{stage.prefix}-operator", **stage.tags}
        self.template = ec2.CfnLaunchTemplate(
            self,
            "Template",
            launch_template_name=f"{stage.prefix}-operator",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                image_id=f"resolve:ssm:{_IMAGE.format(stage.code.architecture)}",
                instance_type=_SIZES[stage.code.architecture],
                iam_instance_profile=ec2.CfnLaunchTemplate.IamInstanceProfileProperty(arn=profile.attr_arn),
                instance_initiated_shutdown_behavior="terminate",
                user_data=user_data,
                metadata_options=ec2.CfnLaunchTemplate.MetadataOptionsProperty(
                    http_tokens="required", http_put_response_hop_limit=1, instance_metadata_tags="enabled"
                ),
                network_interfaces=[
                    ec2.CfnLaunchTemplate.NetworkInterfaceProperty(
                        device_index=0,
                        subnet_id=subnet,
                        groups=[place.security_group.security_group_id],
                        associate_public_ip_address=False,
                        ipv6_address_count=1 if stage.network.egress == "dual_stack" else None,
                    )
                ],
                block_device_mappings=[
                    ec2.CfnLaunchTemplate.BlockDeviceMappingProperty(
                        device_name="/dev/xvda",
                        ebs=ec2.CfnLaunchTemplate.EbsProperty(
                            volume_size=_DISK_GIB,
                            volume_type="gp3",
                            encrypted=True,
                            delete_on_termination=True,
                        ),
                    )
                ],
                tag_specifications=[
                    ec2.CfnLaunchTemplate.TagSpecificationProperty(
                        resource_type=kind, tags=[{"key": key, "value": value} for key, value in tags.items()]
                    )
                    for kind in ("instance", "volume")
                ],
            ),
        )
        self.template.node.add_dependency(self._role)

    def let_start(self, function: PythonFunction) -> None:
        """Let the migrate function list the hosts, and start them from this template only."""
        arn = Stack.of(self).format_arn(
            service="ec2", resource="launch-template", resource_name=self.template.ref
        )
        template = {
            "ArnEquals": {"ec2:LaunchTemplate": arn},
            "Bool": {"ec2:IsLaunchTemplateResource": "true"},
        }
        launched = {"StringEquals": {"ec2:CreateAction": "RunInstances"}}
        function.allow("ec2:RunInstances", on=["*"], when=template)
        function.allow("ec2:CreateTags", on=["*"], when=launched)
        function.allow("ec2:DescribeInstances", on=["*"])
        function.allow("ssm:GetParameters", on=[_image_arn(self, self._stage)])
        passed = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
        function.allow("iam:PassRole", on=[self._role.role_arn], when=passed)

    def _allow_work(self, data: DataStack, assets: str) -> None:
        def allow(*actions: str, on: list[str]) -> None:
            self._role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=on))

        allow(*_AGENT, on=["*"])
        allow("s3:GetObject", on=[f"{assets}/*"])  # not the tools' key: a rollback would take it from a host
        allow("lambda:InvokeFunction", on=[self._migrate_arn])
        data.database.allow_owner_login(self._role)
        server = data.database.value(self, "resource-id")
        allow("rds-db:connect", on=[data.database.user_arn(APP_ROLE, server)])

    def _user_data(self, data: DataStack, bucket: str, key: str) -> str:
        endpoint = data.database.value(self, "host")
        url = data.database.instance_url(self)
        variables = {
            "AWS_REGION": Stack.of(self).region,
            "AWS_DEFAULT_REGION": Stack.of(self).region,
            **({"AWS_USE_DUALSTACK_ENDPOINT": "true"} if self._stage.network.egress == "dual_stack" else {}),
            "PYTHON_VERSION": self._stage.code.python_version,
            "MIGRATE_FUNCTION": self._migrate_arn,
            "VECTORFORGE_DATABASE_AUTH": "iam",
            "VECTORFORGE_DATABASE_URL": url.replace("://", f"://{APP_ROLE}@"),
            "VECTORFORGE_MIGRATOR_DATABASE_URL": url,
            "VECTORFORGE_MIGRATOR_SECRET_ID": data.database.value(self, "owner-secret"),
            "PGHOST": endpoint,
            "PGUSER": OWNER_ROLE,
            "PGDATABASE": DATABASE,
            "PGSSLMODE": "verify-full",
            "PGSSLROOTCERT": "/var/task/certificates/database.pem",
        }
        exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        script = (
            _SCRIPT.read_text()
            .replace("@EXPORTS@", exports.rstrip())
            .replace("@TOOLS@", f"s3://{bucket}/{key}")
        )
        hours = {"@SESSION_MINUTES@": HOST_HOURS * 60, "@TASK_MINUTES@": TASK_HOURS * 60}
        for name, minutes in hours.items():
            script = script.replace(name, str(minutes))
        return Fn.base64(script)


def _image_arn(scope: Construct, stage: StageSettings) -> str:
    """ARN of a public parameter, which belongs to no account."""
    stack = Stack.of(scope)
    name = _IMAGE.format(stage.code.architecture)
    return f"arn:{stack.partition}:ssm:{stack.region}::parameter{name}"
