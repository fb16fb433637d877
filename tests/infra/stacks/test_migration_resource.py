"""Migrations in a deployment: their time, and the resources that wait for them."""

import json
import shutil
from pathlib import Path

import pytest

from infra.functions.migration import MIGRATIONS, fingerprint
from infra.stage_settings import StageSettings
from tests.infra.stack_template import StackTemplate, text


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MIGRATIONS, tmp_path / "migrations"))


def test_fingerprint_changes_with_every_migration_change(migrations: Path) -> None:
    seen = [fingerprint(MIGRATIONS)]
    assert fingerprint(migrations) == seen[0]
    last = max(migrations.glob("*.sql"))
    new = migrations / "9999_new.sql"
    new.write_text("SELECT 1;\n")
    seen.append(fingerprint(migrations))
    new.write_text("SELECT 2;\n")
    seen.append(fingerprint(migrations))
    new.rename(migrations / "9999_renamed.sql")
    seen.append(fingerprint(migrations))
    last.unlink()
    seen.append(fingerprint(migrations))
    assert len(set(seen)) == len(seen)
    (migrations / "notes.txt").write_text("no migration\n")
    assert fingerprint(migrations) == seen[-1]


def test_resource_changes_with_migrations_and_database(template: StackTemplate) -> None:
    schema = template.of_kind("Custom::DatabaseSchema")["MigrationSchema"]
    assert schema["Migrations"] == fingerprint(MIGRATIONS)
    assert text(schema["Database"]) == "database.resourceid"
    # The same for every version of the code: CloudFormation rejects a change.
    assert text(schema["ServiceToken"]) == "MigrationMigrateAlias"


def test_resource_timeout_exceeds_function_timeout(template: StackTemplate, stage: StageSettings) -> None:
    schema = template.of_kind("Custom::DatabaseSchema")["MigrationSchema"]
    wait_s = int(schema["ServiceTimeout"])
    assert stage.migrate.timeout_s < wait_s <= 3600
    asynchronous = template.of_kind("AWS::Lambda::EventInvokeConfig")[
        "MigrationMigrateAliasEventInvokeConfig"
    ]
    assert asynchronous["MaximumEventAgeInSeconds"] <= wait_s


def test_new_versions_depend_on_the_migration(template: StackTemplate) -> None:
    published = [
        key
        for kind in ("AWS::Lambda::Version", "AWS::Lambda::Alias")
        for key in template.of_kind(kind)
        if not key.startswith(("Migration", "Probe")) and "KeyAuthorizer" not in key  # without a database
    ]
    assert len(published) == 6
    for waits in published:
        assert "MigrationSchema" in template.dependencies(waits)
    # Event sources use the alias, so that they are created after the migration, too.
    for source in ("QueryLogRecordsSource", "IngestionJobsSource", "IngestionLook", "BulkLoadStateMachine"):
        assert "MigrationSchema" in template.all_dependencies(source)


def test_missing_indexes_are_built_hourly(template: StackTemplate) -> None:
    rule = template.of_kind("AWS::Events::Rule")["MigrationIndex"]
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 hour)", "ENABLED")
    [target] = rule["Targets"]
    assert json.loads(target["Input"]) == {"action": "index"}
    assert text(target["Arn"]) == "MigrationMigrateAlias"
    assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0
    assert "MigrationSchema" in template.all_dependencies("MigrationIndex")  # its tables are there


def test_migration_depends_on_own_code_and_permissions_only(
    template: StackTemplate,
) -> None:
    before = template.all_dependencies("MigrationSchema")
    assert {
        "MigrationMigrateAlias",
        "MigrationMigrateFunction",
        "MigrationMigrateRoleDefaultPolicy",
    } <= before
    # The operator's host continues what takes longer than the function's timeout.
    assert not [key for key in before if not key.startswith(("Migration", "Operator"))]
