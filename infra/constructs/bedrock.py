"""Permissions for the models of Amazon Bedrock that a stage's settings name."""

import re
from dataclasses import dataclass
from typing import Final

from aws_cdk import Stack

from infra.constructs.python_function import PythonFunction
from infra.setting_types import SettingsError
from infra.stage_settings import StageSettings

ANSWERS: Final = "VECTORFORGE_BEDROCK_MODEL"
EMBEDDINGS: Final = "VECTORFORGE_BEDROCK_EMBEDDING_MODEL"
REGION: Final = "VECTORFORGE_BEDROCK_REGION"

_PROFILE = re.compile(r"(?:global|apac|us-gov|[a-z]{2})\.(?P<model>[a-z0-9-]+\..+)")
"""The id of an inference profile is a geography and the id of the model that it leads to:
https://docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-support.html."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The model or inference profile that a setting names."""

    name: str
    """Value of the setting: an id or an ARN."""
    id: str
    """Id of the model or of the inference profile."""
    profiled: str | None
    """Id of the model behind an inference profile, which chooses the region; else None."""


def named_model(stage: StageSettings, setting: str) -> NamedModel | None:
    """Return the model that a setting names, or None.

    Raises:
        SettingsError: It is an application inference profile, which does not say what is behind it.
    """
    name = stage.environment.get(setting)
    if not name:
        return None
    if "application-inference-profile" in name:
        raise SettingsError(f"{setting} hides its models: name the model, or a profile of AWS's own.")
    model = name.rpartition("/")[2]
    profile = _PROFILE.fullmatch(model)
    return NamedModel(name, model, profile["model"] if profile else None)


def named_models(stage: StageSettings) -> list[NamedModel]:
    """Return all models that the stage names; empty without Bedrock."""
    found = (named_model(stage, setting) for setting in (ANSWERS, EMBEDDINGS))
    return [model for model in found if model is not None]


_ACTIONS = {
    # Converse and ConverseStream have no actions of their own:
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
    ANSWERS: ("bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"),
    EMBEDDINGS: ("bedrock:InvokeModel",),
}


def allow_models(function: PythonFunction, stage: StageSettings, *settings: str) -> None:
    """Let a function invoke the models that these settings name.

    Raises:
        SettingsError: One names an application inference profile, which does not say what is behind it.
    """
    for setting in settings:
        if (model := named_model(stage, setting)) is not None:
            _allow(function, stage, model, _ACTIONS[setting])
    if ANSWERS in settings and named_model(stage, ANSWERS) is not None:
        # What lists has no resources: `vectorforge providers models`, and the deep health check.
        function.allow("bedrock:ListFoundationModels", "bedrock:ListInferenceProfiles", on=["*"])


def allow_contexts(function: PythonFunction, stage: StageSettings) -> None:
    """Let a function have the answering model write the contexts of chunks, which are not streamed."""
    if (model := named_model(stage, ANSWERS)) is not None:
        _allow(function, stage, model, ("bedrock:InvokeModel",))


def _allow(
    function: PythonFunction, stage: StageSettings, model: NamedModel, actions: tuple[str, ...]
) -> None:
    stack = Stack.of(function)
    region = stage.environment.get(REGION) or stack.region
    if model.profiled is None:
        arn = f"arn:{stack.partition}:bedrock:{region}::foundation-model/{model.id}"
    else:
        arn = f"arn:{stack.partition}:bedrock:{region}:{stack.account}:inference-profile/{model.id}"
    arn = model.name if model.name.startswith("arn:") else arn
    function.allow(*actions, on=[arn])
    if model.profiled is not None:
        # The model, too, in each region that the profile may choose, which AWS adds to; directly in none:
        # https://docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-prereq.html
        function.allow(
            *actions,
            on=[f"arn:{stack.partition}:bedrock:*::foundation-model/{model.profiled}"],
            when={"StringEquals": {"bedrock:InferenceProfileArn": arn}},
        )
