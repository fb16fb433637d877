"""Which models of Amazon Bedrock a stage names, by the settings in ``StageSettings.environment``."""

import re
from dataclasses import dataclass
from typing import Final

from infra.settings import SettingsError, StageSettings

ANSWERS: Final = "VECTORFORGE_BEDROCK_MODEL"
EMBEDDINGS: Final = "VECTORFORGE_BEDROCK_EMBEDDING_MODEL"
REGION: Final = "VECTORFORGE_BEDROCK_REGION"

_PROFILE = re.compile(r"(?:global|apac|us-gov|[a-z]{2})\.(?P<model>[a-z0-9-]+\..+)")
"""The id of an inference profile is a geography and the id of the model that it leads to:
https://docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-support.html."""


@dataclass(frozen=True, slots=True)
class NamedModel:
    """What a setting names."""

    name: str
    """As the setting has it: an id or an ARN."""
    id: str
    """Of the model, or of the inference profile."""
    profiled: str | None
    """Id of the model behind it, when it is an inference profile, which chooses the region."""


def named_model(stage: StageSettings, setting: str) -> NamedModel | None:
    """The model that a setting names; None when it names none.

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
    """All models that the stage names; empty: it does not ask Bedrock at all."""
    found = (named_model(stage, setting) for setting in (ANSWERS, EMBEDDINGS))
    return [model for model in found if model is not None]
