"""Migrations never break the version that still serves, nor block it: expand first, contract much later."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vectorforge.db.schema.migrate import MIGRATIONS, read_migrations

BEFORE_THE_FIRST_RELEASE = {"0007_jobs_by_source.sql", "0008_jobs_side_by_side.sql"}
"""They index tables that are there, and block writers meanwhile; but no older version ever served beside
them. Nothing is to be added here."""

NOT_OURS = {  # rules of squawk (https://squawkhq.com/docs/rules) that are left out, and why
    "prefer-bigint-over-int": "numbers of tokens and milliseconds do not grow beyond an int",
    "prefer-robust-stmts": "a file is one transaction; one without is repeatable, as its review has to see",
    "require-lock-timeout": "the migrator sets it for every file",
    "require-statement-timeout": "a migration may take long, if only it blocks nobody",
}


def broken_rules(*files: Path) -> list[tuple[str, str]]:
    """(file, rule) of each finding of squawk."""
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


def test_every_migration_keeps_to_the_rules() -> None:
    files = sorted(MIGRATIONS.glob("*.sql"))
    assert [file.name for file in files] == [migration.name for migration in read_migrations()]
    assert broken_rules(*(file for file in files if file.name not in BEFORE_THE_FIRST_RELEASE)) == []


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
def test_what_would_break_or_block_is_found(rule: str, statement: str, tmp_path: Path) -> None:
    file = tmp_path / "0001_test.sql"
    file.write_text(f"{statement};\n")
    assert (file.name, rule) in broken_rules(file)


def test_what_expands_is_allowed(tmp_path: Path) -> None:
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
