"""``vectorforge doctor --aws``: checks of this machine, and of the planned deployment."""

import json
import shutil
from pathlib import Path

import pytest

from tests.infra.deployment_doctor import PINNED, Doctor, stand_in
from tests.support.aws.fake_aws import REGION


class TestDualStackHosts:
    def test_hosts_without_ipv6_are_named(self, doctor: Doctor) -> None:
        report = json.loads(doctor.run("--json", stage="dev")[1])
        found = {c["detail"].split()[0]: c for c in report["checks"] if c["name"] == "ipv6"}
        assert found["127.0.0.1"]["status"] == "fail"
        assert "VECTORFORGE_OPENAI_BASE_URL" in found["127.0.0.1"]["detail"]
        assert '"nat"' in found["127.0.0.1"]["remedy"]
        assert found["::1"]["status"] == "ok"
        assert found["no-such-host.invalid"]["status"] == "warn"
        assert {"api.openai.com", "api.anthropic.com"} <= set(found)
        assert {f"sqs.{REGION}.api.aws", f"secretsmanager.{REGION}.api.aws"} <= set(found)

    def test_hosts_are_not_checked_with_nat(self, doctor: Doctor) -> None:
        assert "ipv6" not in doctor.checks()

    def test_elastic_ip_quota_is_not_checked(self, doctor: Doctor) -> None:
        assert "addresses" not in doctor.checks(stage="dev")


class TestTools:
    @pytest.fixture(autouse=True)
    def signed_out(self, doctor: Doctor) -> None:
        doctor.sign_out()

    @pytest.mark.parametrize(
        ("script", "status"),
        [("echo v18.20.1", "fail"), ("echo v20.20.2", "warn"), ("exit 1", "fail"), ("echo hello", "fail")],
    )
    def test_node_version_is_checked(self, doctor: Doctor, tmp_path: Path, script: str, status: str) -> None:
        stand_in(tmp_path / "tools", script)
        found = doctor.checks()["node"]
        assert (found["status"], "Node.js 22" in found["remedy"]) == (status, True)

    def test_missing_node_fails(self, doctor: Doctor, tmp_path: Path) -> None:
        assert doctor.checks(stage="prod", PATH=str(tmp_path))["node"]["status"] == "fail"

    def test_newer_cdk_fails_and_missing_package_names_pinned_version(self, doctor: Doctor) -> None:
        package = doctor.clone / "infra" / "node_modules" / "aws-cdk" / "package.json"
        package.write_text('{"version": "3.0.0"}')
        found = doctor.checks()["cdk"]
        assert (found["status"], found["remedy"]) == ("fail", "Run `npm ci --prefix infra`.")
        package.unlink()
        assert PINNED in doctor.checks()["cdk"]["detail"]

    def test_working_directory_outside_clone_fails(self, doctor: Doctor, tmp_path: Path) -> None:
        doctor.clone = tmp_path
        assert doctor.checks()["cdk"]["status"] == "fail"


class TestAssembly:
    @pytest.fixture(autouse=True)
    def signed_out(self, doctor: Doctor) -> None:
        doctor.sign_out()

    @pytest.mark.parametrize("content", [None, "{", "[]", '{"artifacts": {}}'])
    def test_unusable_assembly_is_a_warning(
        self, doctor: Doctor, tmp_path: Path, content: str | None
    ) -> None:
        if content is not None:
            (tmp_path / "prod").mkdir()
            (tmp_path / "prod" / "manifest.json").write_text(content)
        doctor.assemblies = tmp_path
        found = doctor.checks()
        assert (found["stacks"]["status"], "bytecode" in found) == ("warn", False)
        assert "make synth STAGE=prod" in found["stacks"]["remedy"]

    def test_assembly_of_another_stage_is_reported(self, doctor: Doctor, tmp_path: Path) -> None:
        shutil.copytree(doctor.assemblies / "dev", tmp_path / "prod")
        doctor.assemblies = tmp_path
        found = doctor.checks()["stacks"]
        assert "VectorForge-dev-Data" in found["detail"]

    def test_assembly_without_bytecode_is_a_warning(self, doctor: Doctor, tmp_path: Path) -> None:
        copied: Path = shutil.copytree(doctor.assemblies / "prod", tmp_path / "prod")
        for file in copied.rglob("*.pyc"):
            file.rename(file.with_name("handler.cpython-311.pyc"))
        doctor.assemblies = tmp_path
        found = doctor.checks()["bytecode"]
        assert (found["status"], "uv python install 3.14" in found["remedy"]) == ("warn", True)
