"""``make deploy``: checks the account, deploys a stage, and prints the commands to run next.

    python -m infra.deployment.deploy --stage dev --region eu-central-1

Exit codes: 0 done; 1 a check, the CDK or CloudFormation failed; 2 the command line is wrong; 130 interrupted.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from infra.bundling.bundle import ROOT
from infra.deployment.cdk_command import (
    Cdk,
    DeploymentError,
    argument_parser,
    aws_session,
    chosen_cdk,
    guarded,
)
from infra.deployment.synth import synthesize, templates
from infra.settings import choose
from infra.stage_settings import StageSettings

_SETTINGS = ("openai_api_key", "azure_openai_api_key", "azure_openai_ad_token")
_KEYS = tuple(name for setting in _SETTINGS for name in (setting, f"VECTORFORGE_{setting.upper()}"))
_EMBEDDING_PROVIDER = "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER"


def deploy(cdk: Cdk, stage: StageSettings, *, approved: bool, checked: bool, key: str | None = None) -> None:
    """Synthesize, check, deploy, and report.

    Args:
        cdk: The CDK command line.
        stage: The stage's settings.
        approved: Deploy without asking about changes of permissions.
        checked: Check the account first.
        key: OpenAI's, stored in the stage's secret if it has none.

    Raises:
        DeploymentError: One of the steps failed.
    """
    if not approved and not sys.stdin.isatty():
        raise DeploymentError("This is not a terminal; deploy without confirmation with --yes.", exit_code=2)
    synthesize(cdk)
    if checked:
        _check(cdk)
    outputs = cdk.assembly / f"outputs-{stage.stage}.json"
    outputs.unlink(missing_ok=True)  # those of an earlier deployment, if this one fails
    approval = "never" if approved else "broadening"
    arguments = ["--app", str(cdk.assembly), "--require-approval", approval, "--progress", "events"]
    names = list(templates(cdk.assembly))
    if _needs_key(stage) and not _has_key(cdk, stage):
        data = [name for name in names if name.endswith("-Data")]
        cdk.run("deploy", *data, *arguments, "--outputs-file", str(outputs))
        sys.stdout.write("\n".join([*report(cdk.assembly, outputs), ""]))
        if key is not None and not _has_key(cdk, stage):
            value = json.dumps({"openai_api_key": key})
            secrets = aws_session(cdk.region).client("secretsmanager")
            secrets.put_secret_value(SecretId=stage.provider_secret, SecretString=value)
        if not _has_key(cdk, stage):
            raise DeploymentError(
                f"The data stack is deployed. The functions of {stage.stage} need a key of OpenAI: store it "
                f"in {stage.provider_secret} with the command above, then run `make deploy` again."
            )
    cdk.run("deploy", *names, *arguments, "--outputs-file", str(outputs))
    sys.stdout.write(
        "\n".join(["", f"The stage {stage.stage} is deployed.", *report(cdk.assembly, outputs), ""])
    )


def report(assembly: Path, outputs: Path) -> Iterator[str]:
    """Yield the stacks' outputs that have a description.

    Args:
        assembly: Its templates describe the outputs.
        outputs: File of ``cdk deploy --outputs-file``.

    Raises:
        DeploymentError: The file is missing or malformed.
    """
    try:
        values: dict[str, dict[str, str]] = json.loads(outputs.read_text())
    except (OSError, ValueError):
        raise DeploymentError(f"The CDK wrote no outputs to {outputs}.") from None
    for stack, template in templates(assembly).items():
        described: dict[str, Any] = template.get("Outputs", {})
        for key, output in described.items():
            if "Description" in output and key in values.get(stack, {}):
                yield f"\n# {output['Description']}\n{values[stack][key]}"


def _check(cdk: Cdk) -> None:
    command = [sys.executable, "-m", "infra.doctor", "--stage", cdk.stage]
    command += ["--assembly", str(cdk.assembly), *(["--region", cdk.region] if cdk.region else [])]
    done = subprocess.run(command, cwd=ROOT, env=cdk.environment, check=False)  # noqa: S603 - our own words
    if done.returncode:
        raise DeploymentError(
            "A check failed, and nothing was deployed. --skip-checks deploys all the same.",
            exit_code=done.returncode,
        )


def _needs_key(stage: StageSettings) -> bool:
    """Return whether the functions embed with OpenAI's models, which every query needs."""
    return stage.environment.get(_EMBEDDING_PROVIDER, "openai") == "openai"


def _has_key(cdk: Cdk, stage: StageSettings) -> bool:
    """Return whether the stage's secret holds a key of OpenAI; the key itself is discarded."""
    from botocore.exceptions import ClientError

    name, secrets = stage.provider_secret, aws_session(cdk.region).client("secretsmanager")
    try:
        secret = json.loads(secrets.get_secret_value(SecretId=name)["SecretString"])
    except secrets.exceptions.ResourceNotFoundException:
        return False
    except ClientError as exc:
        raise DeploymentError(f"{name} cannot be read ({exc.response['Error']['Code']}).") from None
    except (KeyError, ValueError) as exc:
        raise DeploymentError(f"{name} cannot be read ({type(exc).__name__}).") from None
    return isinstance(secret, dict) and any(secret.get(key) for key in _KEYS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Deploy as the command line says and return the exit code."""
    parser = argument_parser("infra.deployment.deploy", __doc__.partition("\n")[0])
    parser.add_argument("--yes", action="store_true", help="do not ask about changes of permissions")
    parser.add_argument("--skip-checks", action="store_true", help="do not check the account before")
    parser.add_argument(
        "--all-at-once",
        action="store_true",
        help="give a new version all queries at once, without CodeDeploy, which refuses every version "
        "while an alarm of the canary rings: for going back to a former commit, and for repairs in an outage",
    )
    parser.add_argument(
        "--store-key",
        action="store_true",
        help="store OPENAI_API_KEY of the environment in the stage's secret, if it has no key",
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        key = (os.environ.get("OPENAI_API_KEY") or None) if options.store_key else None
        stage = choose(options.stage)
        cdk = dataclasses.replace(chosen_cdk(options), all_at_once=options.all_at_once)
        deploy(cdk, stage, approved=options.yes, checked=not options.skip_checks, key=key)

    return guarded(work)


if __name__ == "__main__":
    sys.exit(main())
