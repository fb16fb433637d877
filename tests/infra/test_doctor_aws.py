"""``vectorforge doctor --aws``: checks of an account."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from botocore.exceptions import ReadTimeoutError

from infra.doctor.account import DeployedStack, check_stacks
from infra.doctor.aws import understand
from tests.infra.deployment_doctor import BOOTSTRAP, ORDER, Doctor
from tests.support.aws.fake_aws import REGION
from tests.support.aws.scripted_aws import EVERY

VECTORFORGE = Path(sys.executable).with_name("vectorforge")


def test_doctor_command_prints_checks_in_order(doctor: Doctor) -> None:
    assembly = str(doctor.assemblies / "prod")
    command = [str(VECTORFORGE), "doctor", "--aws", "--stage", "prod", "--assembly", assembly]
    done = subprocess.run(command, cwd=doctor.clone, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["ok", name] for name in ORDER]


def test_unknown_stage_is_rejected_with_those_that_exist(doctor: Doctor) -> None:
    command = [str(VECTORFORGE), "doctor", "--aws", "--stage", "nope"]
    done = subprocess.run(command, cwd=doctor.clone, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid choice: 'nope' (choose from 'dev'" in done.stderr


def test_nat_stage_in_ordinary_account_passes_all_checks(doctor: Doctor) -> None:
    found = doctor.checks()
    assert list(found) == ORDER
    assert {check["status"] for check in found.values()} == {"ok"}
    details = {name: check["detail"] for name, check in found.items()}
    assert details["credentials"] == "account 123456789012 as user/moto"
    assert details["region"] == REGION
    assert details["bootstrap"] == "version 30 (at least 6)"
    assert details["vpcs"] == "1 of 5 VPCs in use, 1 more needed"  # moto's accounts have a default VPC
    assert details["addresses"] == "0 of 5 elastic IPs in use, 2 more needed"
    assert details["instances"] == "0 of 40 RDS instances in use, 1 more needed"
    assert details["database"] == f"db.t4g.micro with PostgreSQL 17 (17.10) is offered in {REGION}"
    assert details["bytecode"] == "in all 1 functions"


class TestCredentials:
    def test_missing_credentials_fail(self, doctor: Doctor) -> None:
        doctor.sign_out()
        found = doctor.checks()
        assert list(found) == ORDER[: ORDER.index("credentials") + 1]
        assert found["credentials"]["status"] == "fail"
        assert "AWS_PROFILE" in found["credentials"]["remedy"]

    @pytest.mark.parametrize(
        ("code", "status", "says"),
        [
            ("ExpiredToken", 403, "aws sso login"),
            ("InvalidClientTokenId", 403, "enabled the region"),
            ("SignatureDoesNotMatch", 403, "clock"),
            ("AccessDenied", 403, "sts:GetCallerIdentity"),
            ("InternalFailure", 500, "AWS CLI"),
        ],
    )
    def test_rejected_credentials_fail_with_remedy(
        self, doctor: Doctor, code: str, status: int, says: str
    ) -> None:
        doctor.account.fail(*EVERY, code, status=status)
        found = doctor.checks()["credentials"]
        assert found["status"] == "fail"
        assert code in found["detail"]
        assert says in found["remedy"]

    def test_credentials_expiring_during_checks_fail(self, doctor: Doctor) -> None:
        doctor.account.fail("lambda", "GetAccountSettings", "ExpiredTokenException", status=403)
        assert doctor.statuses()["concurrency"] == "fail"

    def test_unknown_profile_fails(self, doctor: Doctor) -> None:
        found = doctor.checks(stage="prod", AWS_PROFILE="typo")["credentials"]
        assert (found["status"], "AWS_PROFILE" in found["remedy"]) == ("fail", True)

    def test_sso_without_login_fails_with_remedy(self, doctor: Doctor, tmp_path: Path) -> None:
        doctor.sign_out()
        (tmp_path / "config").write_text(
            "[profile work]\nsso_start_url = https://example.awsapps.com/start\nsso_region = eu-central-1\n"
            "sso_account_id = 123456789012\nsso_role_name = Deployer\n"
        )
        doctor.patch.setenv("HOME", str(tmp_path))  # the SDK's session folder
        found = doctor.checks(AWS_PROFILE="work", AWS_CONFIG_FILE=str(tmp_path / "config"))["credentials"]
        assert (found["status"], found["remedy"]) == ("fail", "Run `aws sso login`.")

    def test_root_user_is_a_warning(self, doctor: Doctor) -> None:
        answer = (
            "<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
            "<GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:root</Arn><Account>123456789012</Account>"
            "<UserId>1</UserId></GetCallerIdentityResult></GetCallerIdentityResponse>"
        )
        doctor.account.answer("sts", "GetCallerIdentity", answer, kind="text/xml")
        assert doctor.statuses()["credentials"] == "warn"


class TestRegion:
    def test_region_is_resolved_as_in_cdk(self, doctor: Doctor) -> None:
        variables = {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-1"}
        assert doctor.checks(stage="prod", **variables)["region"]["detail"] == "eu-west-1"
        found = doctor.checks("--region", "eu-west-3", **variables)
        assert found["region"]["detail"] == "eu-west-3"
        assert found["bootstrap"]["status"] == "fail"  # created in another region

    def test_missing_region_fails(self, doctor: Doctor) -> None:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            doctor.patch.delenv(name)
        found = doctor.checks()
        assert found["region"]["status"] == "fail"
        assert "credentials" not in found

    def test_misspelled_region_fails_with_suggestion(self, doctor: Doctor) -> None:
        doctor.account.delay(0.1)
        found = doctor.checks("--region", "eu-centrall-1")["region"]
        assert (found["status"], found["remedy"]) == ("fail", "Did you mean eu-central-1?")

    def test_region_other_than_stack_region_fails(self, doctor: Doctor) -> None:
        doctor.sign_out()
        found = doctor.checks(stage="lean")["region"]
        assert (found["status"], found["remedy"]) == ("fail", "Give --region us-west-2.")


class TestBootstrap:
    def test_missing_bootstrap_fails(self, doctor: Doctor) -> None:
        doctor.account.client("ssm").delete_parameter(Name=BOOTSTRAP)
        found = doctor.checks()["bootstrap"]
        assert found["status"] == "fail"
        assert "cdk bootstrap" in found["remedy"]

    @pytest.mark.parametrize("version", ["5", "none"])
    def test_outdated_or_invalid_bootstrap_fails(self, doctor: Doctor, version: str) -> None:
        doctor.account.client("ssm").put_parameter(Name=BOOTSTRAP, Value=version, Overwrite=True)
        assert doctor.statuses()["bootstrap"] == "fail"


class TestQuotas:
    def test_exhausted_quotas_fail(self, doctor: Doctor) -> None:
        for number in range(4):  # and the default one
            doctor.account.client("ec2").create_vpc(CidrBlock=f"10.{number}.0.0/16")
        for _ in range(4):
            doctor.account.client("ec2").allocate_address(Domain="vpc")
        doctor.account.allow_database_instances(used=40, limit=40)
        doctor.account.offer_databases(multi_az=False)
        found = doctor.checks()
        for name in ("vpcs", "addresses", "instances", "database"):
            assert found[name]["status"] == "fail", name
        assert found["addresses"]["detail"] == "4 of 5 elastic IPs in use, 2 more needed"
        assert "--quota-code L-F678F1CE --desired-value 10" in found["vpcs"]["remedy"]

    @pytest.mark.parametrize("versions", [(), ("16.13", "18.2"), ("170.1",)])
    def test_database_without_the_major_version_fails(self, doctor: Doctor, versions: tuple[str]) -> None:
        doctor.account.offer_databases(multi_az=True, versions=versions)
        found = doctor.checks()["database"]
        assert found["status"] == "fail"
        assert found["detail"] == f"{REGION} does not offer db.t4g.micro with PostgreSQL 17"

    def test_deployed_stack_does_not_need_more_quota(self, doctor: Doctor) -> None:
        template = {
            "Resources": {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}}}
        }
        doctor.account.client("cloudformation").create_stack(
            StackName="VectorForge-prod-Data", TemplateBody=json.dumps(template)
        )
        for number in range(3):
            doctor.account.client("ec2").create_vpc(CidrBlock=f"10.{number}.0.0/16")
        found = doctor.checks()
        assert found["deployed"]["detail"] == "VectorForge-prod-Data is CREATE_COMPLETE"
        assert found["vpcs"]["detail"] == "5 of 5 VPCs in use, 0 more needed"
        assert found["vpcs"]["status"] == "ok"

    @pytest.mark.parametrize(
        ("limit", "unreserved", "status"), [(1000, 120, "ok"), (1000, 119, "fail"), (10, 10, "fail")]
    )
    def test_concurrency_quota_is_compared_with_reservation(
        self, doctor: Doctor, limit: int, unreserved: int, status: str
    ) -> None:
        doctor.account.allow_concurrency(limit, unreserved)
        assert doctor.statuses()["concurrency"] == status  # the stage reserves 20

    def test_low_concurrency_of_new_account_is_a_warning(self, doctor: Doctor, tmp_path: Path) -> None:
        doctor.account.allow_concurrency(10, 10)
        doctor.assemblies = tmp_path  # without information about the stage's reservation
        assert doctor.statuses()["concurrency"] == "warn"

    def test_quota_without_own_value_uses_default(self, doctor: Doctor) -> None:
        missing = json.dumps({"__type": "NoSuchResourceException", "Message": "none"})
        doctor.account.answer("servicequotas", "GetServiceQuota L-0263D0A3", missing, status=400)
        default = json.dumps({"Quota": {"Value": 3.0}})
        doctor.account.answer("servicequotas", "GetAWSDefaultServiceQuota L-0263D0A3", default)
        found = doctor.checks()["addresses"]
        assert found["detail"] == "0 of 3 elastic IPs in use, 2 more needed"


class TestInaccessibleAccount:
    def test_denied_describe_calls_are_warnings(self, doctor: Doctor) -> None:
        refused = {
            "vpcs": ("ec2", "DescribeVpcs", "UnauthorizedOperation"),
            "interfaces": ("ec2", "DescribeNetworkInterfaces", "RequestLimitExceeded"),
            "concurrency": ("lambda", "GetAccountSettings", "TooManyRequestsException"),
            "bootstrap": ("ssm", "GetParameter", "AccessDeniedException"),
            "deployed": ("cloudformation", "DescribeStacks", "Throttling"),
            "database": ("rds", "DescribeOrderableDBInstanceOptions", "AccessDenied"),
        }
        for service, operation, code in refused.values():
            doctor.account.fail(service, operation, code)
        found = doctor.checks()
        assert {name for name, check in found.items() if check["status"] != "ok"} == set(refused)
        for name, (_, _, code) in refused.items():
            assert found[name]["status"] == "warn"
            assert code in found[name]["detail"]
        assert "lambda:GetAccountSettings" not in found["concurrency"]["remedy"]
        assert "ec2:DescribeVpcs" in found["vpcs"]["remedy"]

    def test_unreachable_endpoint_fails_with_remedy(self, doctor: Doctor) -> None:
        found = doctor.checks(stage="prod", AWS_ENDPOINT_URL="http://127.0.0.1:9")["credentials"]
        assert (found["status"], "network" in found["remedy"]) == ("fail", True)

    def test_late_closed_connection_fails_with_remedy(self, doctor: Doctor) -> None:
        doctor.account.delay(1)
        found = doctor.checks()["credentials"]
        assert (found["status"], "network" in found["remedy"]) == ("fail", True)

    def test_read_timeout_is_explained(self) -> None:
        silent = ReadTimeoutError(endpoint_url="https://ec2.eu-central-1.amazonaws.com")
        assert understand(silent, action="ec2:DescribeVpcs").detail == "AWS did not answer in time"

    def test_invalid_endpoint_url_fails(self, doctor: Doctor) -> None:
        assert doctor.statuses(stage="prod", AWS_ENDPOINT_URL="nowhere")["credentials"] == "fail"


class TestLeftovers:
    def test_resources_with_needed_names_fail(self, doctor: Doctor) -> None:
        secrets = doctor.account.client("secretsmanager")
        secrets.create_secret(Name="vectorforge-prod/providers", SecretString="{}")
        secrets.delete_secret(SecretId="vectorforge-prod/providers")  # in thirty days
        doctor.account.client("logs").create_log_group(logGroupName="/aws/lambda/vectorforge-prod")
        doctor.account.client("sqs").create_queue(QueueName="vectorforge-prod-jobs")
        found = doctor.checks()["leftovers"]
        assert found["status"] == "fail"
        assert found["detail"].endswith(" and 2 more")
        assert "make destroy STAGE=prod" in found["remedy"]

    def test_resources_with_similar_names_are_ignored(self, doctor: Doctor) -> None:
        doctor.account.client("logs").create_log_group(logGroupName="/aws/lambda/vectorforge-prod2")
        doctor.account.client("sqs").create_queue(QueueName="vectorforge-prod-jobs-dead")
        assert doctor.statuses()["leftovers"] == "ok"

    def test_resources_of_deployed_stack_are_ignored(self, doctor: Doctor) -> None:
        queue = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "vectorforge-prod-jobs"}}
        doctor.account.client("cloudformation").create_stack(
            StackName="VectorForge-prod-Data", TemplateBody=json.dumps({"Resources": {"Queue": queue}})
        )
        assert doctor.statuses()["leftovers"] == "ok"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UPDATE_COMPLETE", "ok"),
        ("UPDATE_ROLLBACK_COMPLETE", "ok"),
        ("ROLLBACK_COMPLETE", "fail"),
        ("UPDATE_ROLLBACK_FAILED", "fail"),
        ("UPDATE_IN_PROGRESS", "fail"),
    ],
)
def test_stack_that_rejects_updates_fails(status: str, expected: str) -> None:
    [check] = check_stacks({"VectorForge-dev-App": DeployedStack(status, {})}, "dev", None)
    assert (check.status, bool(check.remedy)) == (expected, expected == "fail")


def test_report_ends_with_number_of_failed_checks(doctor: Doctor) -> None:
    doctor.account.allow_database_instances(used=40, limit=40)
    code, printed = doctor.run()
    assert code == 1
    assert printed.splitlines()[-1] == f"1 of {len(ORDER)} checks failed."


def test_checks_are_read_only(doctor: Doctor) -> None:
    doctor.run()
    operations = {operation for _, operation in doctor.account.calls}
    assert operations
    assert all(operation.startswith(("Describe", "Get", "List")) for operation in operations), operations
