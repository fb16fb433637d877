"""The probe: queries the service every five minutes, and a new version before it gets traffic."""

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.python_function import ALIAS, PythonFunction
from infra.functions.query_function import QueryFunction
from infra.setting_types import FunctionSettings
from infra.stage_settings import PROBE_KEY_ID, StageSettings

_EVERY = Duration.minutes(5)


class Probe(Construct):
    """The function, its schedule, and the check of a new version with ``StageSettings.canary``.

    It invokes the query function itself, past the front doors: their alarms watch those.

    Args:
        settings: Of the function.
        query: Whose alias and newest version it invokes.

    Attributes:
        function: The function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        settings: FunctionSettings,
        query: QueryFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        version = query.function.function.current_version
        self.function = PythonFunction(
            self,
            "Function",
            function="probe",
            description=f"VectorForge ({stage.stage}): queries the service as a caller would",
            stage=stage,
            settings=settings,
            place=None,
            environment={"PROBE_KEY_ID": PROBE_KEY_ID, "PROBED_VERSION": version.function_arn},
            system_log_level_v2=lambda_.SystemLogLevel.WARN,
        )
        # The alias waits for the probe, which must not refer to it.
        alias = query.function.named_arn(ALIAS)
        self.function.allow("lambda:InvokeFunction", on=[version.function_arn, alias])
        self._schedule(stage, query.function, alias)
        if query.canary is not None:
            query.canary.check_with(self.function)

    def _schedule(self, stage: StageSettings, query: PythonFunction, alias: str) -> None:
        self.function.alias.configure_async_invoke(retry_attempts=0, max_event_age=_EVERY)
        rule = events.Rule(
            self,
            "Schedule",
            rule_name=f"{stage.prefix}-probe",
            description="VectorForge: has the probe query the service",
            schedule=events.Schedule.rate(_EVERY),
            targets=[
                targets.LambdaFunction(
                    self.function.alias,
                    event=events.RuleTargetInput.from_object({"function": alias}),
                    retry_attempts=0,
                )
            ],
        )
        rule.node.add_dependency(query.alias)
