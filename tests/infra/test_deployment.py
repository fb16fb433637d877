"""``make synth`` and ``make deploy``, with a stand-in for the CDK and an account over HTTP."""

import dataclasses
import itertools
import json
import signal
import subprocess
import sys

import boto3
import pytest

from infra.deployment.cdk_command import DeploymentError, check_environment
from infra.deployment.synth import CodeAsset
from infra.settings import DEV
from infra.stage_settings import StageSettings
from tests.infra.deployment_commands import KEY, ROOT, Commands
from tests.support.aws.fake_aws import REGION
from tests.support.aws.scripted_aws import EVERY


class TestSynth:
    def test_prints_function_sizes(self, commands: Commands) -> None:
        printed = commands.run("synth", "--stage", "prod").stdout
        assert "VectorForge-prod-App: 2 resources\n" in printed
        assert "migrate         2.0 MB of 80 MB, no bytecode: cold starts compile\n" in printed
        [call] = commands.calls
        assert "stage=prod" in call
        assert "--no-lookups" in call

    def test_budget_below_one_megabyte_is_not_rounded_to_none(self) -> None:
        assert "0.0 MB of 0.05 MB" in str(CodeAsset("authorizer", 2_000, compiled=True))

    def test_compiled_code_is_reported_without_warning(self, commands: Commands) -> None:
        (commands.folder / "stage=dev" / "asset.c0de" / "handler.cpython-314.pyc").write_bytes(b"")
        assert "migrate         2.0 MB of 80 MB\n" in commands.run("synth").stdout

    def test_cdk_failure_is_reported(self, commands: Commands) -> None:
        commands.fail("synth")
        printed = commands.run("synth", code=1).stderr
        assert printed.splitlines()[-1] == "error: `cdk synth` failed (exit code 7); see above."

    def test_missing_cdk_error_names_install_command(self, commands: Commands) -> None:
        (commands.folder / "cdk").unlink()
        assert "npm ci --prefix infra" in commands.run("synth", code=2).stderr

    def test_interrupt_is_reported_in_one_line(self, commands: Commands) -> None:
        (commands.folder / "cdk").write_text("#!/bin/sh\nkill -INT $PPID\nexec sleep 60\n")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        assert commands.run("synth", code=130).stderr == "error: Interrupted.\n"

    def test_interrupt_of_the_app_prints_nothing(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        program = "import infra.app, os, signal; os.kill(os.getpid(), signal.SIGINT)"
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (-signal.SIGINT, "")  # 130 in a shell

    def test_unknown_setting_is_reported_with_the_nearest(self) -> None:
        def of(name: str) -> StageSettings:
            return dataclasses.replace(DEV, environment={name: "5"})

        with pytest.raises(DeploymentError, match=r"TOPK is not .*\. Did you mean VECTORFORGE_MAX_TOP_K\?"):
            check_environment(of("VECTORFORGE_MAX_TOPK"))
        check_environment(of("VECTORFORGE_MAX_TOP_K"))

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            (
                "VECTORFORGE_MAX_TOP_K",
                "five",
                "stage 'dev': environment: VECTORFORGE_MAX_TOP_K: Input should",
            ),
            ("VECTORFORGE_CHUNK_OVERLAP_CHARS", "9000", "at most half of VECTORFORGE_CHUNK_SIZE_CHARS"),
            ("VECTORFORGE_API_KEYS", '{"sk-1": "acme"}', "maps the sha256 of a key"),
            ("VECTORFORGE_API_KEYS", "sk-1", "not valid JSON"),
        ],
    )
    def test_value_that_functions_reject_is_reported(
        self, name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VECTORFORGE_DATABASE_POOL_SIZE", "of the shell")  # no setting of the stage
        with pytest.raises(DeploymentError, match=message) as refused:
            check_environment(dataclasses.replace(DEV, environment={name: value}))
        assert "sk-1" not in str(refused.value)

    def test_unknown_stage_is_rejected(self, commands: Commands) -> None:
        assert "invalid choice" in commands.run("synth", "--stage", "typo", code=2).stderr
        assert commands.calls == []


def make_secret(commands: Commands, content: str, stage: str = "prod", region: str = REGION) -> None:
    session = boto3.session.Session("testing", "testing", region_name=region)
    secrets = session.client("secretsmanager", endpoint_url=commands.account.url)
    secrets.create_secret(Name=f"vectorforge-{stage}/providers", SecretString=content)


class TestDeploy:
    @pytest.fixture(autouse=True)
    def key(self, commands: Commands) -> None:
        for region in (REGION, "us-west-2"):
            make_secret(commands, json.dumps({"openai_api_key": KEY}), stage="dev", region=region)

    def test_prints_commands_to_paste(self, commands: Commands) -> None:
        done = commands.run("deploy", "--yes", "--skip-checks", "--region", "us-west-2")
        assert done.stdout.endswith(
            "\nThe stage dev is deployed.\n\n# Stores a key\nput-secret VectorForge-dev-Data\n"
            "\n# Asks a question\ncurl VectorForge-dev-App\n"
        )
        assert commands.called == ["synth", "deploy"]
        region, _, *arguments = commands.calls[-1]
        assert region == "us-west-2"
        assert arguments[:2] == ["VectorForge-dev-Data", "VectorForge-dev-App"]
        assert arguments[arguments.index("--require-approval") + 1] == "never"
        assert arguments[arguments.index("--app") + 1] == str(commands.folder / "cdk.out")

    def test_terminal_session_requires_approval(self, commands: Commands) -> None:
        commands.run("deploy", "--skip-checks", typed="")
        arguments = commands.calls[-1]
        assert arguments[arguments.index("--require-approval") + 1] == "broadening"

    def test_session_without_terminal_requires_yes_flag(self, commands: Commands) -> None:
        assert "--yes" in commands.run("deploy", "--skip-checks", code=2).stderr
        assert commands.calls == []

    def test_all_at_once_flag_disables_canary(self, commands: Commands) -> None:
        commands.run("deploy", "--yes", "--skip-checks", "--all-at-once")
        _, command, *arguments = commands.calls[0]
        assert command == "synth"
        contexts = [after for name, after in itertools.pairwise(arguments) if name == "--context"]
        assert contexts == ["stage=dev", "canary=off"]
        assert "canary=off" not in commands.calls[-1]  # deploys what was synthesized

    def test_canary_is_enabled_by_default(self, commands: Commands) -> None:
        commands.run("deploy", "--yes", "--skip-checks")
        assert not any("canary=off" in call for call in commands.calls)

    def test_help_explains_all_at_once(self, commands: Commands) -> None:
        printed = " ".join(commands.run("deploy", "--help").stdout.split())
        assert "CodeDeploy, which refuses every version while an alarm of the canary rings" in printed

    def test_failed_check_stops_deployment(self, commands: Commands) -> None:
        commands.account.fail(*EVERY, "ExpiredToken", status=403)
        done = commands.run("deploy", "--yes", code=1)
        assert "fail credentials  the session has expired" in done.stdout
        assert done.stderr.endswith(
            "A check failed, and nothing was deployed. --skip-checks deploys all the same.\n"
        )
        assert commands.called == ["synth"]

    def test_checks_run_in_deployment_region(self, commands: Commands) -> None:
        commands.account.fail(*EVERY, "ExpiredToken", status=403)
        printed = commands.run("deploy", "--yes", "--region", "ap-south-1", code=1).stdout
        assert "ok   region       ap-south-1" in printed

    @pytest.mark.parametrize("command", ["synth", "deploy"])
    def test_cdk_failure_is_reported(self, commands: Commands, command: str) -> None:
        commands.fail(command)
        done = commands.run("deploy", "--yes", "--skip-checks", code=1)
        assert f"`cdk {command}` failed" in done.stderr
        assert "is deployed" not in done.stdout


class TestDeployWithoutKey:
    @pytest.mark.parametrize("stage", ["dev", "prod"])
    def test_stops_before_functions_and_prints_key_command(self, commands: Commands, stage: str) -> None:
        done = commands.run("deploy", "--yes", "--skip-checks", "--stage", stage, code=1)
        assert f"vectorforge-{stage}/providers" in done.stderr
        assert "make deploy" in done.stderr
        assert f"# Stores a key\nput-secret VectorForge-{stage}-Data" in done.stdout
        assert commands.called == ["synth", "deploy"]
        assert commands.calls[-1][2:4] == [f"VectorForge-{stage}-Data", "--app"]

    @pytest.mark.parametrize("content", ["{}", '{"openai_api_key": ""}', '{"google_api_key": "x"}'])
    def test_secret_without_key_stops_deployment(self, commands: Commands, content: str) -> None:
        make_secret(commands, content)
        commands.run("deploy", "--yes", "--skip-checks", "--stage", "prod", code=1)

    def test_stored_key_continues_deployment(self, commands: Commands) -> None:
        make_secret(commands, json.dumps({"openai_api_key": KEY}))
        commands.run("deploy", "--yes", "--skip-checks", "--stage", "prod")
        assert commands.called == ["synth", "deploy"]
        assert commands.calls[-1][2:4] == ["VectorForge-prod-Data", "VectorForge-prod-App"]

    def test_key_of_environment_is_stored_on_request(self, commands: Commands) -> None:
        make_secret(commands, "{}")
        commands.environment["OPENAI_API_KEY"] = KEY
        arguments = ("deploy", "--yes", "--skip-checks", "--stage", "prod")
        commands.run(*arguments, code=1)
        commands.run(*arguments, "--store-key")
        found = commands.account.client("secretsmanager").get_secret_value(
            SecretId="vectorforge-prod/providers"
        )
        assert json.loads(found["SecretString"]) == {"openai_api_key": KEY}

    @pytest.mark.parametrize("content", ["not JSON " + KEY, ""])
    def test_unreadable_secret_is_reported(self, commands: Commands, content: str) -> None:
        if content:
            make_secret(commands, content)
        else:
            commands.account.fail("secretsmanager", "GetSecretValue", "AccessDeniedException")
        done = commands.run("deploy", "--yes", "--skip-checks", "--stage", "prod", code=1)
        assert "vectorforge-prod/providers cannot be read" in done.stderr
