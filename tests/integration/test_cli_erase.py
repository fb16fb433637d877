"""``vectorforge erase`` as a user runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from psycopg.conninfo import make_conninfo

from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.postgres.tenant_dump import dump_database

VECTORFORGE = Path(sys.executable).with_name("vectorforge")
CANARY = "quokkasaurus"


class CommandLine:
    """Runs commands with the eraser's settings only."""

    def __init__(self, database_url: str, folder: Path) -> None:
        parts = ("host", "port", "dbname")
        given = {name: value for name, value in _parsed(database_url).items() if name in parts}
        url = f"postgresql://vectorforge_eraser@/{given['dbname']}?host={given['host']}&port={given['port']}"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
        self._environment = {
            **inherited,
            "VECTORFORGE_DATABASE_URL": url,
            "VECTORFORGE_ERASER_DATABASE_URL": url,
        }
        self._folder = folder

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        done = subprocess.run(
            [VECTORFORGE, "erase", *arguments, "--json"],
            cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False, timeout=120,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if done.stdout else None


def _parsed(conninfo: str) -> dict[str, Any]:
    from psycopg.conninfo import conninfo_to_dict

    return {"port": 5432, **conninfo_to_dict(conninfo)}


@pytest.fixture
def database_url(make_database: Callable[..., str]) -> str:
    return make_database()


async def test_document_and_tenant_are_erased_and_listed(database_url: str, tmp_path: Path) -> None:
    app_url = make_conninfo(database_url, user="vectorforge_app")
    async with live_api(settings_for(app_url, ["local"])) as api, api.client("local") as client:
        await add_documents(
            client, await new_collection(client), a=f"The {CANARY} bakes.", b=f"{CANARY}s rest."
        )
    erase = CommandLine(database_url, tmp_path)
    document = erase("document", "a.md", "--yes")
    assert (document["status"], document["erased"]["documents"]) == ("done", 1)
    assert document["certificate"]["requested_by"].startswith("cli: ")

    file = tmp_path / "certificate.json"
    file.write_text(json.dumps({**document, "erased": {"documents": 2}}))  # next to the certificate
    assert erase("verify", str(file), code=1) == {"sha256": document["sha256"], "unchanged": False}
    file.write_text(json.dumps(document))
    assert erase("verify", str(file))["unchanged"] is True
    document["certificate"]["erased"]["documents"] = 2
    file.write_text(json.dumps(document))
    assert erase("verify", str(file), code=1) == {"sha256": ANY, "unchanged": False}

    assert CANARY.encode() in dump_database(database_url)
    erase("tenant", "local", code=2)  # no terminal for the confirmation, and no --yes
    tenant = erase("tenant", "local", "--yes")
    assert CANARY.encode() not in dump_database(database_url)
    listed = erase("list")["erasures"]
    assert [one["id"] for one in listed] == [tenant["id"], document["id"]]
