"""Queues, buckets and the functions behind them, as CloudFormation reads them. F-003, C34."""

import re
from pathlib import Path
from typing import Any

import pytest

from infra.bundling.database_certificates import write_database_certificates
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate, as_list, text
from vectorforge.config import known_variables

DAY_S = 86_400
QUEUES = {"QueryLogRecords": "query-log", "IngestionJobs": "ingestion"}
BUCKETS = {
    "AccessLogsBucket",
    "QueryLogOverflow",
    "IngestionUploads",
    "IngestionOriginals",
    "BulkLoadReports",
}


@pytest.mark.parametrize("messages", QUEUES)
def test_messages_are_retained_two_weeks_and_dead_lettered_after_five_receives(
    template: StackTemplate, stage: StageSettings, messages: str
) -> None:
    queues = template.of_kind("AWS::SQS::Queue")
    queue, dead = queues[f"{messages}Queue"], queues[f"{messages}DeadLetters"]
    name = f"{stage.prefix}-{QUEUES[messages]}"
    assert (queue["QueueName"], dead["QueueName"]) == (name, f"{name}-dead")
    assert text(queue["RedrivePolicy"]["deadLetterTargetArn"]) == f"{messages}DeadLetters.Arn"
    assert queue["RedrivePolicy"]["maxReceiveCount"] == 5
    allowed = dead["RedriveAllowPolicy"]
    assert allowed["redrivePermission"] == "byQueue"
    assert [text(arn).rpartition(":")[2] for arn in allowed["sourceQueueArns"]] == [name]
    for either in (queue, dead):
        assert either["MessageRetentionPeriod"] == 14 * DAY_S
        assert either["SqsManagedSseEnabled"] is True
        assert either["MaximumMessageSize"] == 1_048_576


def test_visibility_timeout_is_six_times_function_timeout(
    template: StackTemplate, stage: StageSettings
) -> None:
    queues = template.of_kind("AWS::SQS::Queue")
    functions = template.of_kind("AWS::Lambda::Function")
    # AWS also counts the window: it begins when a message is received.
    for queue, function, window_s in (
        ("QueryLogRecordsQueue", "QueryLogWriterFunction", 1),
        ("IngestionJobsQueue", "IngestionIngestFunction", 0),
    ):
        assert queues[queue]["VisibilityTimeout"] >= 6 * functions[function]["Timeout"] + window_s
        assert queues[queue]["VisibilityTimeout"] <= 12 * 3600
    assert functions["IngestionIngestFunction"]["Timeout"] == stage.ingest.timeout_s


def test_event_sources_report_item_failures_with_limited_concurrency(
    template: StackTemplate, stage: StageSettings
) -> None:
    sources = template.of_kind("AWS::Lambda::EventSourceMapping")
    records, jobs = sources.pop("QueryLogRecordsSource"), sources.pop("IngestionJobsSource")
    assert not sources
    assert (records["BatchSize"], records["MaximumBatchingWindowInSeconds"]) == (100, 1)
    assert (jobs["BatchSize"], jobs.get("MaximumBatchingWindowInSeconds")) == (1, None)
    for source, queue, settings in (
        (records, "QueryLogRecordsQueue", stage.log_writer),
        (jobs, "IngestionJobsQueue", stage.ingest),
    ):
        assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert source["ScalingConfig"] == {"MaximumConcurrency": settings.max_concurrency}
        assert text(source["EventSourceArn"]) == f"{queue}.Arn"


def test_functions_are_invoked_through_alias_by_their_sources_only(template: StackTemplate) -> None:
    sources = template.of_kind("AWS::Lambda::EventSourceMapping")
    assert text(sources["QueryLogRecordsSource"]["FunctionName"]) == "QueryLogWriterAlias[6]:live"
    assert text(sources["IngestionJobsSource"]["FunctionName"]) == "IngestionIngestAlias[6]:live"
    rule = template.of_kind("AWS::Events::Rule")["IngestionLook"]
    assert [text(target["Arn"]) for target in rule["Targets"]] == ["IngestionIngestAlias"]
    permission = template.of_kind("AWS::Lambda::Permission")
    assert [
        (p["Principal"], text(p["FunctionName"]), text(p["SourceArn"]))
        for key, p in permission.items()
        if key.startswith("Ingestion")
    ] == [("events.amazonaws.com", "IngestionIngestAlias", "IngestionLook.Arn")]
    machine = template.of_kind("AWS::StepFunctions::StateMachine")["BulkLoadStateMachine"]
    assert text(machine["DefinitionSubstitutions"]["IngestFunction"]) == "IngestionIngestAlias"
    assert (
        text(template.resources["MigrationSchema"]["Properties"]["ServiceToken"]) == "MigrationMigrateAlias"
    )
    for key, policy in template.of_kind("AWS::IAM::Policy").items():
        # test_probe_stack, test_query_stack, test_operator_host
        if key.startswith(("ProbeFunction", "QueryCanary", "OperatorRole")):
            continue
        for statement in policy["PolicyDocument"]["Statement"]:
            if any(action.startswith("lambda:Invoke") for action in as_list(statement["Action"])):
                invoked = [text(resource) for resource in as_list(statement["Resource"])]
                assert invoked == ["IngestionIngestAlias"]


def test_recursive_loop_is_allowed_for_ingest_function_only(template: StackTemplate) -> None:
    """Its jobs are in the database, so a message that wakes it again is not a loop. Others are terminated."""
    functions = template.of_kind("AWS::Lambda::Function")
    allowed = {name for name, function in functions.items() if function.get("RecursiveLoop") == "Allow"}
    assert allowed == {"IngestionIngestFunction"}
    assert {function.get("RecursiveLoop", "Terminate") for function in functions.values()} == {
        "Allow",
        "Terminate",
    }


def test_ingest_function_is_scheduled_every_five_minutes(template: StackTemplate) -> None:
    rule = template.of_kind("AWS::Events::Rule")["IngestionLook"]
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(5 minutes)", "ENABLED")
    # The next run makes up for a failed one, so none are queued.
    assert rule["Targets"][0]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 300, "MaximumRetryAttempts": 0}
    asynchronous = template.of_kind("AWS::Lambda::EventInvokeConfig")["IngestionIngestAliasEventInvokeConfig"]
    assert asynchronous["MaximumRetryAttempts"] == 0
    assert asynchronous["MaximumEventAgeInSeconds"] == 300
    assert text(asynchronous["Qualifier"]) == "IngestionIngestAlias[7]"


def test_buckets_are_private_encrypted_unversioned_and_access_logged(template: StackTemplate) -> None:
    buckets = template.of_kind("AWS::S3::Bucket")
    assert set(buckets) >= BUCKETS
    for key in BUCKETS:
        bucket = buckets[key]
        assert all(bucket["PublicAccessBlockConfiguration"].values())
        assert len(bucket["PublicAccessBlockConfiguration"]) == 4
        encryption = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert [rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] for rule in encryption] == ["AES256"]
        assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        assert not {"VersioningConfiguration", "AccessControl", "BucketName"} & set(bucket)
        assert (key == "AccessLogsBucket") != ("LoggingConfiguration" in bucket)
    writers = [
        text(statement["Condition"]["ArnLike"]["aws:SourceArn"])
        for statement in _policy(template, "AccessLogsBucket")
        if statement["Effect"] == "Allow"
    ]
    assert sorted(writers) == sorted(f"{key}.Arn" for key in BUCKETS - {"AccessLogsBucket"})


def test_object_expiry_exceeds_message_lifetime(template: StackTemplate, stage: StageSettings) -> None:
    buckets = template.of_kind("AWS::S3::Bucket")
    days = {}
    for key in BUCKETS:
        (rule,) = buckets[key]["LifecycleConfiguration"]["Rules"]
        assert rule["Status"] == "Enabled"
        assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
        days[key] = rule.get("ExpirationInDays")
    # A message lives for 14 days, and for 14 more when it is redriven: its object outlives both.
    assert days["QueryLogOverflow"] > 2 * 14
    assert days["IngestionUploads"] == stage.uploads_kept_days
    assert days["IngestionOriginals"] is None
    assert days["AccessLogsBucket"] == stage.log_retention_days


def test_upload_bucket_cors_and_expiry_follow_stage(
    app_templates: dict[str, StackTemplate],
) -> None:
    uploads = {
        name: app_templates[name].of_kind("AWS::S3::Bucket")["IngestionUploads"] for name in ("dev", "both")
    }
    assert "CorsConfiguration" not in uploads["dev"]
    (rule,) = uploads["both"]["CorsConfiguration"]["CorsRules"]
    assert rule["AllowedOrigins"] == ["https://docs.example.org"]
    assert rule["AllowedMethods"] == ["POST"]
    (lifecycle,) = uploads["both"]["LifecycleConfiguration"]["Rules"]
    assert "ExpirationInDays" not in lifecycle
    assert lifecycle["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


def test_queues_and_buckets_require_tls(template: StackTemplate) -> None:
    queues = [f"{messages}{queue}" for messages in QUEUES for queue in ("Queue", "DeadLetters")]
    for key in (*queues, *BUCKETS):
        plain = [
            statement
            for statement in _policy(template, key)
            if statement.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
        ]
        assert [(s["Effect"], s["Principal"]) for s in plain] == [("Deny", {"AWS": "*"})]
        assert plain[0]["Action"] in ("s3:*", "sqs:*")
        assert f"{key}.Arn" in [text(resource) for resource in as_list(plain[0]["Resource"])]


def test_upload_notification_depends_on_queue_policy(template: StackTemplate) -> None:
    bucket = template.of_kind("AWS::S3::Bucket")["IngestionUploads"]
    (notification,) = bucket["NotificationConfiguration"]["QueueConfigurations"]
    assert (notification["Event"], text(notification["Queue"])) == (
        "s3:ObjectCreated:*",
        "IngestionJobsQueue.Arn",
    )
    # S3 sends a test message on creation of the bucket: without the policy it fails, and so does the stack.
    assert "IngestionJobsQueuePolicy" in template.dependencies("IngestionUploads")
    assert "IngestionUploads" not in template.all_dependencies("IngestionUploads")
    allowed = [s for s in _policy(template, "IngestionJobsQueue") if s["Effect"] == "Allow"]
    assert [(s["Action"], s["Principal"], text(s["Resource"])) for s in allowed] == [
        ("sqs:SendMessage", {"Service": "s3.amazonaws.com"}, "IngestionJobsQueue.Arn")
    ]
    assert allowed[0]["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_stack_has_no_cdk_provided_functions(template: StackTemplate, stage: StageSettings) -> None:
    handlers = {function["Handler"] for function in template.of_kind("AWS::Lambda::Function").values()}
    ours = ["query", "log_writer", "ingest", "migrate"]
    ours += ["authorizer"] if stage.has_authorizer else []
    ours += ["probe"] if stage.probe else []
    assert handlers == {f"functions.{name}.handler.handler" for name in ours}
    custom = {r["Type"] for r in template.resources.values() if r["Type"].startswith("Custom::")}
    assert custom == {"Custom::DatabaseSchema"}


def test_deletion_policy_follows_stage(template: StackTemplate, stage: StageSettings) -> None:
    removal_policy = "RetainExceptOnCreate" if stage.keep_data else "Delete"
    for resource in template.resources.values():
        if resource["Type"] in ("AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::Logs::LogGroup"):
            assert resource["DeletionPolicy"] == removal_policy
            assert resource["UpdateReplacePolicy"] == ("Retain" if stage.keep_data else "Delete")


def test_functions_connect_with_tokens_over_verified_tls(
    template: StackTemplate, stage: StageSettings, tmp_path: Path
) -> None:
    certificates = tmp_path / "certificates"
    write_database_certificates(certificates)
    functions = template.of_kind("AWS::Lambda::Function")
    logins = {
        "QueryLogWriterFunction": ("VECTORFORGE_LOG_WRITER_DATABASE_URL", "vectorforge_log_writer@"),
        "IngestionIngestFunction": ("VECTORFORGE_DATABASE_URL", "vectorforge_app@"),
        # Its user and password are in the secret of RDS.
        "MigrationMigrateFunction": ("VECTORFORGE_MIGRATOR_DATABASE_URL", ""),
    }
    for function, (variable, user) in logins.items():
        environment = functions[function]["Environment"]["Variables"]
        assert environment["VECTORFORGE_DATABASE_AUTH"] == "iam"
        assert {key for key in environment if key.endswith("DATABASE_URL")} == {variable}
        url = text(environment[variable])
        assert re.match(rf"postgresql://{user}[A-Za-z0-9.]+:5432/vectorforge\?", url), url
        roots = "proxy.pem" if stage.database.proxy else "rds-AWS::Region.pem"
        options = "" if stage.database.proxy else "&options=-c%20idle_session_timeout%3D120000"
        if function.startswith("Migration"):
            roots, options = "database.pem", ""
        assert url.endswith(f"?sslmode=verify-full&sslrootcert=/var/task/certificates/{roots}{options}")
        assert (certificates / roots.replace("AWS::Region", "eu-central-1")).is_file()


def test_function_settings_are_known_variables(template: StackTemplate) -> None:
    for function in template.of_kind("AWS::Lambda::Function").values():
        settings = {key for key in function["Environment"]["Variables"] if key.startswith("VECTORFORGE_")}
        assert settings <= known_variables()


def _policy(template: StackTemplate, key: str) -> list[dict[str, Any]]:
    """Return the statements of the only policy of a queue or bucket."""
    found = [
        policy["PolicyDocument"]["Statement"]
        for kind in ("AWS::SQS::QueuePolicy", "AWS::S3::BucketPolicy")
        for policy in template.of_kind(kind).values()
        if key in [text(name) for name in as_list(policy.get("Queues") or policy.get("Bucket"))]
    ]
    assert len(found) == 1  # a second policy would replace the first
    return found[0]  # type: ignore[no-any-return] # JSON
