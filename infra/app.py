"""The CDK app: ``cdk synth -c stage=dev``. Asks AWS nothing, so it needs no credentials.

Context: ``stage`` (infra/settings.py), ``architecture`` and ``python`` (for machines other than Lambda's),
``canary=off`` (a new version gets all questions at once, also in a stage with ``canary``).
"""

import sys

from aws_cdk import App, Tags

from infra.app_stack import AppStack
from infra.data_stack import DataStack
from infra.rules import hold_to_rules
from infra.settings import CodeSettings, SettingsError, StageSettings, choose

_CONTEXT = {
    "@aws-cdk/core:defaultCrossStackReferences": "strong",  # the default, which warns where nobody says it
    "@aws-cdk/core:validateAgainstDefaultRules": True,  # CDK's own findings are errors
}
"""Here, not in cdk.json: so nothing decides about templates that the tests do not see."""


def build(app: App, stage: StageSettings) -> tuple[DataStack, AppStack]:
    """Both stacks of a stage, tagged."""
    name = f"VectorForge-{stage.stage}"
    data = DataStack(
        app, f"{name}-Data", stage=stage, description=f"VectorForge ({stage.stage}): network, database, keys"
    )
    functions = AppStack(
        app,
        f"{name}-App",
        stage=stage,
        data=data,
        description=f"VectorForge ({stage.stage}): functions, queues, front door",
    )
    for key, value in {"application": "vectorforge", "stage": stage.stage}.items():
        # CloudFormation has no tags for it, though CDK thinks so.
        Tags.of(app).add(key, value, exclude_resource_types=["AWS::RDS::DBProxyTargetGroup"])
    return data, functions


def _canary(context: str | None) -> bool | None:
    if context not in (None, "off"):
        raise SettingsError(f'The context canary is "off" or not given, not {context!r}.')
    return False if context else None


def main() -> int:
    """Synthesize; 0, or 1 with the reason on stderr."""
    app = App(post_cli_context=_CONTEXT)
    try:
        stage = choose(
            app.node.try_get_context("stage") or "dev",
            architecture=app.node.try_get_context("architecture"),
            python_version=app.node.try_get_context("python"),
            canary=_canary(app.node.try_get_context("canary")),
        )
    except SettingsError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    data, functions = build(app, stage)
    if stage.code == CodeSettings():  # an emulator's Python may not be the latest, which is a finding
        hold_to_rules(app, {"Data": data, "App": functions}, stage)
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
