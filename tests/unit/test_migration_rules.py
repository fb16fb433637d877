"""Migrations neither break nor block the running version: expand now, contract one release later."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.postgres.next_version import write_next_version
from vectorforge.db.schema.migrate import MIGRATIONS, read_migrations

NOT_OURS = {  # excluded rules of squawk (https://squawkhq.com/docs/rules), with reasons
    "prefer-bigint-over-int": "numbers of tokens and milliseconds fit an int",
    "prefer-robust-stmts": "a file is one transaction; one without is reviewed for being repeatable",
    "require-lock-timeout": "the migrator sets it for every file",
    "require-statement-timeout": "a migration may take long as long as it blocks nothing",
}


def broken_rules(*files: Path) -> list[tuple[str, str]]:
    """Return (file, rule) of each finding of squawk."""
    program = shutil.which("squawk", path=str(Path(sys.executable).parent))
    assert program is not None
    found = []
    for file in files:
        in_transaction = not file.read_text().startswith("-- no-transaction")
        options = ["--pg-version=17", "--reporter=json", f"--exclude={','.join(NOT_OURS)}"]
        options.append("--assume-in-transaction" if in_transaction else "--no-assume-in-transaction")
        done = subprocess.run([program, *options, str(file)], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), done.stderr
        found += [(file.name, finding["rule_name"]) for finding in json.loads(done.stdout)]
    return found


def test_migrations_follow_the_rules() -> None:
    files = sorted(MIGRATIONS.glob("*.sql"))
    assert [file.name for file in files] == [migration.name for migration in read_migrations()]
    assert broken_rules(*files) == []


def test_next_version_of_upgrade_test_follows_the_rules(tmp_path: Path) -> None:
    assert broken_rules(*write_next_version(tmp_path / "migrations")) == []


@pytest.mark.parametrize(
    ("rule", "statement"),
    [
        ("ban-drop-column", "ALTER TABLE vectorforge.documents DROP COLUMN title"),
        ("renaming-column", "ALTER TABLE vectorforge.documents RENAME COLUMN title TO name"),
        ("renaming-table", "ALTER TABLE vectorforge.documents RENAME TO files"),
        ("ban-drop-table", "DROP TABLE vectorforge.documents"),
        ("ban-drop-function", "DROP FUNCTION vectorforge.enter_tenant(text)"),
        ("renaming-object", "ALTER FUNCTION vectorforge.enter_tenant(text) RENAME TO enter"),
        ("ban-drop-default", "ALTER TABLE vectorforge.documents ALTER COLUMN title DROP DEFAULT"),
        ("changing-column-type", "ALTER TABLE vectorforge.documents ALTER COLUMN title TYPE varchar(9)"),
        ("adding-not-nullable-field", "ALTER TABLE vectorforge.documents ALTER COLUMN title SET NOT NULL"),
        ("adding-required-field", "ALTER TABLE vectorforge.documents ADD COLUMN pages int NOT NULL"),
        (
            "constraint-missing-not-valid",
            "ALTER TABLE vectorforge.documents ADD CONSTRAINT c CHECK (title <> '')",
        ),
        ("require-concurrent-index-creation", "CREATE INDEX i ON vectorforge.documents (title)"),
        ("require-concurrent-index-deletion", "DROP INDEX vectorforge.documents_by_title"),
        (
            "ban-concurrent-index-creation-in-transaction",
            "CREATE INDEX CONCURRENTLY i ON vectorforge.documents (title); SELECT 1",
        ),
    ],
)
def test_breaking_or_blocking_statement_is_found(rule: str, statement: str, tmp_path: Path) -> None:
    file = tmp_path / "0001_test.sql"
    file.write_text(f"{statement};\n")
    assert (file.name, rule) in broken_rules(file)


def test_expanding_migration_is_allowed(tmp_path: Path) -> None:
    file, index = tmp_path / "0001_test.sql", tmp_path / "0002_index.sql"
    file.write_text(
        "CREATE TABLE vectorforge.pages (id uuid PRIMARY KEY, n int NOT NULL);\n"
        "CREATE INDEX pages_by_n ON vectorforge.pages (n);\n"
        "ALTER TABLE vectorforge.documents ADD COLUMN pages int NOT NULL DEFAULT 0;\n"
        "CREATE OR REPLACE FUNCTION vectorforge.one() RETURNS int LANGUAGE sql AS 'SELECT 1';\n"
        "ALTER TABLE vectorforge.documents ADD CONSTRAINT c CHECK (title <> '') NOT VALID;\n"
    )
    index.write_text("-- no-transaction\nCREATE INDEX CONCURRENTLY i ON vectorforge.documents (title);\n")
    assert broken_rules(file, index) == []
