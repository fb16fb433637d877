"""Templates of one stage that no shared fixture synthesizes."""

import json
from pathlib import Path

from aws_cdk import App

from infra.app import build
from infra.nag_rules import hold_to_rules
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate


def synthesize(stage: StageSettings, folder: Path) -> dict[str, StackTemplate]:
    """Return the templates of both stacks; a finding of cdk-nag fails."""
    app = App(context={"aws:cdk:bundling-stacks": []}, outdir=str(folder))
    data, functions = build(app, stage)
    stacks = {"Data": data, "App": functions}
    hold_to_rules(app, stacks, stage)
    app.synth()
    return {
        name: StackTemplate(json.loads((folder / stack.template_file).read_text()))
        for name, stack in stacks.items()
    }
