"""Documents listed and deleted, collections, statistics and keys on the command line."""

import os
import re

import pytest

from tests.support.command_line import CommandLine


def test_documents_with_filter_are_listed_and_deleted(vectorforge: CommandLine) -> None:
    for name, team in (("a", "hr"), ("b", "hr"), ("c", "it")):
        (vectorforge.folder / f"{name}.md").write_text(f"Text of {name}.")
        vectorforge("ingest", f"{name}.md", "-c", "teams", "-m", f"team={team}")
    of_hr = ("-c", "teams", "--filter", '{"team": "hr"}')
    assert vectorforge.json("documents", "list", *of_hr)["total"] == 2
    found = vectorforge.json("search", "text of c", *of_hr)["results"]
    assert {hit["metadata"]["team"] for hit in found} == {"hr"}
    assert "Text of c" not in vectorforge("ask", "What is the text of c?", *of_hr).stdout
    vectorforge("search", "text of c", "-c", "teams", "--filter", '{"team": "none"}', code=1)
    counted = vectorforge.json("documents", "delete", *of_hr, "--dry-run")
    assert counted == {"matched": 2, "deleted": 0, "remaining": 2, "version": None}
    assert vectorforge("documents", "delete", *of_hr, "--dry-run").stdout == "2 documents would be deleted.\n"
    assert "--yes" in vectorforge("documents", "delete", *of_hr, code=2).stderr
    assert vectorforge("documents", "delete", *of_hr, "--yes").stdout == "Deleted 2 documents.\n"
    assert vectorforge("documents", "delete", *of_hr, "--yes").stdout == "Deleted 0 documents.\n"
    assert [
        d["metadata"]["team"] for d in vectorforge.json("documents", "list", "-c", "teams")["documents"]
    ] == ["it"]


def test_delete_without_selection_is_rejected(vectorforge: CommandLine) -> None:
    (vectorforge.folder / "only.md").write_text("The only one.")
    vectorforge("ingest", "only.md", "-c", "single")
    for arguments, message in (
        ([], "SOURCE"),
        (["./only.md", "--filter", "{}"], "SOURCE"),
        (["--filter", "{}"], "must have a condition"),
        (["--filter", '{"team": {"$near": 1}}'], "$near"),
        (["--filter", "team=hr"], "--filter"),
    ):
        refused = vectorforge("documents", "delete", *arguments, "-c", "single", "--yes", code=2)
        assert message in refused.stderr
    assert vectorforge.json("documents", "list", "-c", "single")["total"] == 1


@pytest.mark.parametrize("command", ["documents delete", "erase document"])
def test_source_that_is_not_utf8_is_rejected_with_the_reason(handbook: CommandLine, command: str) -> None:
    refused = handbook(*command.split(), os.fsdecode(b"caf\xe9.md"), "--yes", code=2)
    assert '"caf\ufffd.md" is not valid UTF-8. `vectorforge documents list` shows' in refused.stderr


def test_collection_name_that_is_not_utf8_is_rejected_with_the_reason(vectorforge: CommandLine) -> None:
    refused = vectorforge("collections", "create", os.fsdecode(b"caf\xe9"), code=2)
    assert refused.stderr == "error: A value cannot be stored: it is not valid UTF-8.\n"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("documents delete nope.md -c handbook", 'no document "nope.md"'),
        ("erase document nope.md -c handbook", 'no document "nope.md"'),
        ("erase collection nope", "nope"),
        ("collections delete nope", "nope"),
        ("keys revoke 0123456789abcdef", "No active key has this id"),
    ],
)
def test_missing_object_is_reported_before_a_confirmation(
    handbook: CommandLine, command: str, reason: str
) -> None:
    refused = handbook(*command.split(), code=2)
    assert reason in refused.stderr
    assert "--yes" not in refused.stderr


def test_deletion_of_existing_object_without_yes_is_rejected(handbook: CommandLine) -> None:
    key = handbook.json("keys", "create", "web page", "-t", "shop")
    for command in (
        ("documents", "delete", "handbook.md", "-c", "handbook"),
        ("erase", "document", "handbook.md", "-c", "handbook"),
        ("erase", "collection", "handbook"),
        ("keys", "revoke", key["id"], "-t", "shop"),
    ):
        assert "--yes" in handbook(*command, code=2).stderr
    assert handbook.json("documents", "list", "-c", "handbook")["total"] == 1
    (listed,) = handbook.json("keys", "list", "-t", "shop")["keys"]
    assert listed["revoked_at"] is None


def test_delete_of_collection_without_yes_is_rejected(vectorforge: CommandLine) -> None:
    vectorforge("collections", "create", "doomed")
    assert "--yes" in vectorforge("collections", "delete", "doomed", code=2).stderr
    assert vectorforge.json("collections", "delete", "doomed", "--yes")["deleted"] is True
    assert "doomed" in vectorforge("collections", "show", "doomed", code=2).stderr


def test_collection_search_settings_are_created_changed_and_shown(vectorforge: CommandLine) -> None:
    made = vectorforge.json("collections", "create", "haus", "--language", "german", "--dense-weight", "0.3")
    assert (made["language"], made["dense_weight"], made["search_mode"]) == ("german", 0.3, "hybrid")
    done = vectorforge("collections", "set", "haus", "--search-mode", "lexical", "--language", "simple")
    assert done.stdout == "haus: lexical search, language simple.\n"
    shown = vectorforge.json("collections", "show", "haus")
    assert (shown["language"], shown["dense_weight"], shown["search_mode"]) == ("simple", 0.3, "lexical")
    assert "english, esto" in vectorforge("collections", "set", "haus", "--language", "x", code=2).stderr
    assert "--dense-weight" in vectorforge("collections", "set", "haus", code=2).stderr
    vectorforge("collections", "set", "haus", "--dense-weight", "1.1", code=2)


def test_stats_after_queries_counts_them(vectorforge: CommandLine) -> None:  # D-041
    vectorforge("ingest", "handbook.md", "-c", "counted")
    for _ in range(2):
        vectorforge("ask", "How many days of holidays are there?", "-c", "counted")
    found = vectorforge.json("stats", "-c", "counted")
    assert found["totals"]["outcomes"] == {"answered": 2}
    assert (len(found["series"]), found["series"][-1]["queries"]) == (7, 2)
    assert found["content"]["documents"] == 1
    lines = [line.split("\t") for line in vectorforge("stats", "-c", "counted").stdout.splitlines()]
    assert ["questions", "2"] in lines
    assert ["cost in US dollars", "0.0000"] in lines
    assert [line[1] for line in lines if line[0] == "extractive extractive-v1"] == ["2"]
    assert len(vectorforge.json("stats", "--days", "30")["series"]) == 30


def test_stats_without_queries_prints_notice(vectorforge: CommandLine) -> None:
    vectorforge("collections", "create", "silent")
    done = vectorforge("stats", "-c", "silent")
    assert "questions\t0" in done.stdout
    assert "No queries in this period." in done.stderr
    assert "days" in vectorforge("stats", "--days", "0", code=2).stderr


def test_keys_are_created_rotated_and_revoked(vectorforge: CommandLine) -> None:
    made = vectorforge("keys", "create", "web page", "--tenant", "acme", "--days", "30")
    assert re.fullmatch(r"vf_[0-9a-f]{16}_[A-Za-z0-9_-]{43}\n", made.stdout)  # alone, to be piped
    assert made.stdout.strip() not in made.stderr
    (listed,) = vectorforge.json("keys", "list", "--tenant", "acme")["keys"]
    assert (listed["name"], listed["scope"], listed["last_used_on"]) == ("web page", "read", None)
    rotated = vectorforge.json("keys", "rotate", listed["id"], "-t", "acme", "--overlap-hours", "1")
    assert rotated["key"].startswith(f"vf_{rotated['id']}_")
    assert vectorforge.json("keys", "revoke", rotated["id"], "-t", "acme", "-y")["revoked_at"]
    refused = vectorforge("keys", "revoke", rotated["id"], "-t", "acme", "--yes", code=2)
    assert "No active key has this id" in refused.stderr
    assert "--tenant" not in refused.stderr
    for command in (("rotate", listed["id"]), ("revoke", listed["id"], "--yes")):
        assert "name it with --tenant" in vectorforge("keys", *command, code=2).stderr
    assert "revoked" in vectorforge("keys", "list", "--tenant", "acme").stdout
    assert vectorforge.json("keys", "list", "-t", "acme", "--limit", "1", "--offset", "1")["keys"] == [
        key for key in vectorforge.json("keys", "list", "-t", "acme")["keys"] if key["id"] == listed["id"]
    ]
    assert vectorforge.json("keys", "list") == {"keys": []}  # of the local tenant


def test_commands_accept_id_or_name_of_collection(vectorforge: CommandLine) -> None:
    name = "team A/notes"
    (vectorforge.folder / "note.md").write_text("The blue team moves in May.")
    ingested = vectorforge.json("ingest", "note.md", "-c", name)
    for reference in (name, ingested["collection_id"]):
        chosen = ("-c", reference)
        assert vectorforge.json("ingest", "note.md", *chosen)["collection"] == name
        assert vectorforge.json("ingest", "note.md", *chosen, "--dry-run")["collection"] == name
        assert vectorforge.json("ask", "When does the blue team move?", *chosen)["citations"]
        assert vectorforge.json("search", "blue team", *chosen)["results"]
        assert vectorforge.json("documents", "list", *chosen)["total"] == 1
        assert vectorforge.json("stats", *chosen)["totals"]["queries"] >= 1
        assert vectorforge.json("collections", "show", reference)["name"] == name
        assert vectorforge.json("collections", "set", reference, "--dense-weight", "0.4")["name"] == name
        status = vectorforge("collections", "reembed", "status", reference, code=2)
        assert "No embedding model switch is open" in status.stderr
    vectorforge("documents", "delete", "note.md", *chosen, "--yes")
    assert vectorforge.json("erase", "collection", ingested["collection_id"], "--yes")["status"] == "done"


def test_empty_collection_name_is_refused(vectorforge: CommandLine) -> None:
    for command in (
        ("ingest", "handbook.md", "-c", ""),
        ("ingest", "handbook.md", "-c", "", "--dry-run"),
        ("search", "refunds", "-c", ""),
        ("collections", "delete", " ", "--yes"),
        ("erase", "collection", "", "--yes"),
    ):
        assert "name of the collection is empty" in vectorforge(*command, code=2).stderr


def test_empty_tenant_is_not_the_local_one(vectorforge: CommandLine) -> None:
    for command in (("keys", "list", "--tenant", ""), ("erase", "tenant", "", "--yes")):
        assert "tenant_id must have" in vectorforge(*command, code=2).stderr
