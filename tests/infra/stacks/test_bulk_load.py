"""The state machine of bulk loads."""

import json
from typing import Any

import pytest

from infra.functions.bulk_load import definition
from infra.settings import PROD, STAGES
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate, text
from vectorforge import errors

_OF_ANSWERS = (
    errors.LLMError,
    errors.AnswerUnavailableError,
    errors.AnswerStreamLostError,
    errors.IdempotentAnswerPendingError,
)
"""Fields of the batch without documents."""


@pytest.fixture(scope="module", params=sorted(STAGES))
def stage(request: pytest.FixtureRequest) -> StageSettings:
    return STAGES[request.param]


@pytest.fixture(scope="module")
def machine(stage: StageSettings, app_templates: dict[str, StackTemplate]) -> dict[str, Any]:
    return app_templates[stage.stage].of_kind("AWS::StepFunctions::StateMachine")["BulkLoadStateMachine"]


@pytest.fixture
def objects(machine: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of the only state, a map."""
    states: dict[str, Any] = json.loads(machine["DefinitionString"])["States"]
    assert list(states) == ["Objects"]
    found: dict[str, Any] = states["Objects"]
    return found


@pytest.fixture
def task(objects: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = objects["ItemProcessor"]["States"]["Ingest"]
    return found


def test_bulk_load_lists_input_prefix_and_writes_to_reports_bucket(
    machine: dict[str, Any], objects: dict[str, Any]
) -> None:
    assert objects["ItemReader"] == {
        "Resource": "arn:${Partition}:states:::s3:listObjectsV2",
        "Parameters": {"Bucket": "${UploadsBucket}", "Prefix.$": "$.prefix"},
    }
    assert objects["ResultWriter"] == {
        "Resource": "arn:${Partition}:states:::s3:putObject",
        "Parameters": {"Bucket": "${ReportsBucket}", "Prefix": "reports"},
    }
    assert {key: text(value) for key, value in machine["DefinitionSubstitutions"].items()} == {
        "IngestFunction": "IngestionIngestAlias",
        "Partition": "AWS::Partition",
        "ReportsBucket": "BulkLoadReports",
        "UploadsBucket": "IngestionUploads",
    }


def test_bulk_load_batch_invokes_ingest_function_at_stage_concurrency(
    objects: dict[str, Any], task: dict[str, Any], stage: StageSettings
) -> None:
    assert objects["Label"] == "Objects"  # the role names it
    assert objects["MaxConcurrency"] == stage.ingest.max_concurrency
    assert objects["ItemBatcher"] == {"MaxItemsPerBatch": 10}
    # An express execution ends after five minutes: https://docs.aws.amazon.com/step-functions/latest/dg/choosing-workflow-type.html
    assert objects["ItemProcessor"]["ProcessorConfig"] == {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}
    assert task["Resource"] == "${IngestFunction}"
    assert task["Parameters"] == {
        "action": "ingest_objects",
        "bucket": "${UploadsBucket}",
        "Items.$": "$.Items",
        "started_at.$": "$$.Execution.StartTime",
    }
    assert task["TimeoutSeconds"] > stage.ingest.timeout_s


def test_bulk_load_without_function_limit_has_unlimited_concurrency() -> None:
    unlimited = definition(type(PROD.ingest)(memory_mb=3008, timeout_s=900))
    assert unlimited["States"]["Objects"]["MaxConcurrency"] == 0


def test_bulk_load_transient_errors_are_retried_with_backoff(task: dict[str, Any]) -> None:
    names = [name for retry in task["Retry"] for name in retry["ErrorEquals"]]
    assert len(names) == len(set(names))
    # Throttles of Lambda, and its own failures.
    assert {"Lambda.TooManyRequestsException", "Lambda.ServiceException", "Lambda.SdkClientException"} <= set(
        names
    )
    for retry in task["Retry"]:
        assert retry["JitterStrategy"] == "FULL"
        assert retry["BackoffRate"] > 1
        assert retry["IntervalSeconds"] <= retry["MaxDelaySeconds"]
        assert 2 <= retry["MaxAttempts"] <= 8


def test_bulk_load_retries_own_errors_by_class_name(task: dict[str, Any]) -> None:
    own = [name for retry in task["Retry"] for name in retry["ErrorEquals"] if "." not in name]
    may_pass = {
        name
        for name, error in vars(errors).items()
        if getattr(error, "retryable", False) and not issubclass(error, _OF_ANSWERS)
    }
    may_pass.remove("UntrustedDatabaseError")  # as long as its certificate is the same
    of_requests = {"IdentityProviderUnavailableError", "GatewayKeysUnavailableError", "FeedbackTooEarlyError"}
    may_pass -= of_requests  # of HTTP requests only
    may_pass.remove("TraceExportError")  # of the log writer only
    assert {"DatabaseUnavailableError", "ObjectStoreError"} <= may_pass <= set(own)
    for name in own:
        assert issubclass(getattr(errors, name), errors.VectorForgeError)
    # Errors that no retry can resolve fail immediately.
    assert not {"InvalidInputError", "ConfigurationError", "UntrustedDatabaseError"} & set(own)
    assert "States.ALL" not in {name for retry in task["Retry"] for name in retry["ErrorEquals"]}


def test_bulk_load_fails_above_tolerated_failure_percentage(objects: dict[str, Any]) -> None:
    assert objects["ToleratedFailurePercentage"] == 5
    states = objects["ItemProcessor"]["States"]
    # Failed documents are a response of the function, not an error: a wrong key fails every one of them.
    assert states["Ingest"]["Next"] == "Look"
    (choice,) = states["Look"]["Choices"]
    assert (choice["Next"], states["Look"]["Default"]) == ("NothingIngested", "Ingested")
    entries = [
        (part["Variable"], part.get("NumericEquals"), part.get("NumericGreaterThan"))
        for part in choice["And"]
    ]
    assert entries == [
        ("$.failed", None, 0),
        *((f"$.{key}", 0, None) for key in ("stored", "unchanged", "pending")),
    ]
    assert states["NothingIngested"]["Type"] == "Fail"
    assert states["NothingIngested"]["CausePath"] == "States.JsonToString($)"
    assert states["Ingested"] == {"Type": "Succeed"}


def test_bulk_load_logs_and_traces_without_execution_data(machine: dict[str, Any]) -> None:
    assert machine["LoggingConfiguration"]["Level"] == "ALL"
    assert machine["LoggingConfiguration"]["IncludeExecutionData"] is False
    assert machine["TracingConfiguration"] == {"Enabled": True}
    assert text(machine["RoleArn"]) == "BulkLoadRole.Arn"


def test_bulk_load_state_machine_depends_on_its_permissions(
    stage: StageSettings, app_templates: dict[str, StackTemplate]
) -> None:
    assert "BulkLoadRoleDefaultPolicy" in app_templates[stage.stage].dependencies("BulkLoadStateMachine")


def test_stack_outputs_name_bucket_state_machine_and_reports(
    stage: StageSettings, app_templates: dict[str, StackTemplate]
) -> None:
    outputs = app_templates[stage.stage].outputs
    assert {
        name: text(outputs[name]["Value"]) for name in ("UploadsBucket", "BulkLoad", "BulkLoadReports")
    } == {
        "UploadsBucket": "IngestionUploads",
        "BulkLoad": "BulkLoadStateMachine",
        "BulkLoadReports": "BulkLoadReports",
    }
