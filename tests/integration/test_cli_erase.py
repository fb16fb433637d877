"""``vectorforge erase`` as a user runs it."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.command_line import CommandLine
from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.postgres.tenant_dump import dump_database

CANARY = "quokkasaurus"


def command_line(database_url: str, folder: Path) -> CommandLine:
    """Return a command line with the eraser's settings only."""
    parts = {"port": 5432, **conninfo_to_dict(database_url)}
    url = f"postgresql://vectorforge_eraser@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"
    names = ("VECTORFORGE_DATABASE_URL", "VECTORFORGE_ERASER_DATABASE_URL")
    return CommandLine(folder, folder / "none", dict.fromkeys(names, url))


@pytest.fixture
def database_url(make_database: Callable[..., str]) -> str:
    return make_database()


async def add(database_url: str) -> None:
    app_url = make_conninfo(database_url, user="vectorforge_app")
    async with live_api(settings_for(app_url, ["local"])) as api, api.client("local") as client:
        await add_documents(
            client, await new_collection(client), a=f"The {CANARY} bakes.", b=f"{CANARY}s rest."
        )


def test_document_and_tenant_are_erased_and_listed(database_url: str, tmp_path: Path) -> None:
    asyncio.run(add(database_url))
    run = command_line(database_url, tmp_path)

    def erase(*arguments: str, code: int = 0) -> Any:
        return run.json("erase", *arguments, code=code)

    document = json.loads(run.process("erase", "document", "a.md", "--yes", "--json").stdout)
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
    run("erase", "tenant", "local", "--json", code=2)  # no terminal for the confirmation, and no --yes
    tenant = erase("tenant", "local", "--yes")
    assert CANARY.encode() not in dump_database(database_url)
    listed = erase("list")["erasures"]
    assert [one["id"] for one in listed] == [tenant["id"], document["id"]]


def test_erasure_of_unknown_tenant_says_that_nothing_was_found(database_url: str, tmp_path: Path) -> None:
    run = command_line(database_url, tmp_path)
    done = run("erase", "tenant", "nope", "--yes")
    assert "certificate " in done.stdout  # it proves that nothing is left
    assert "No data of the tenant nope was found." in done.stderr
