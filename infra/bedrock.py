"""What functions may ask of the models of Amazon Bedrock that the stage names; without names, nothing."""

from aws_cdk import Stack

from infra.bedrock_models import ANSWERS, EMBEDDINGS, REGION, NamedModel, named_model
from infra.python_function import PythonFunction
from infra.settings import StageSettings

_ACTIONS = {
    # Converse and ConverseStream have no actions of their own:
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
    ANSWERS: ("bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"),
    EMBEDDINGS: ("bedrock:InvokeModel",),
}


def allow_models(function: PythonFunction, stage: StageSettings, *settings: str) -> None:
    """Let a function ask the models that these settings name, if they name any.

    Raises:
        SettingsError: One names an application inference profile, which does not say what is behind it.
    """
    for setting in settings:
        if (model := named_model(stage, setting)) is not None:
            _allow(function, stage, model, _ACTIONS[setting])
    if ANSWERS in settings and named_model(stage, ANSWERS) is not None:
        # What lists has no resources: `vectorforge providers models`, and the deep health check.
        function.allow("bedrock:ListFoundationModels", "bedrock:ListInferenceProfiles", on=["*"])


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
