"""Migrations, indexes and checks of the setup on the command line."""

import json

import pytest

from tests.support.command_line import CommandLine
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from vectorforge.threads import LoopThread


def test_migrate_of_new_database_applies_what_check_lists(vectorforge: CommandLine) -> None:
    fresh = str(vectorforge.folder / "fresh")
    pending = vectorforge.json("migrate", "--check", "--data-dir", fresh, code=1)["pending"]
    assert pending[0].startswith("0001_")
    assert vectorforge.json("migrate", "--data-dir", fresh) == {"applied": pending}
    assert vectorforge.json("migrate", "--check", "--data-dir", fresh) == {"pending": []}


def test_doctor_of_migrated_database_is_ok(vectorforge: CommandLine) -> None:
    vectorforge("migrate")
    report = vectorforge.json("doctor")
    assert report["ok"] is True
    details = {check["name"]: check["detail"] for check in report["checks"]}
    assert "pgvector" in details["database"]
    assert details["migrations"] == "up to date"


def test_index_build_is_listed_as_ready(vectorforge: CommandLine) -> None:
    made = vectorforge.json("collections", "create", "small vectors", "--vector-index", "half")
    assert made["vector_index"] == "half"
    assert vectorforge.json("index", "build") == {"built": []}  # no collection is large enough
    space = f"cosine_{made['dimension']}_half"
    [built] = vectorforge.json("index", "build", space, "--workers", "0", "--memory-mb", "64")["built"]
    assert (built["space"], built["state"]) == (space, "ready")
    spaces = {row["space"]: row["state"] for row in vectorforge.json("index", "list")["spaces"]}
    assert spaces[space] == "ready"
    assert spaces["cosine_1536"] == "none"


def test_doctor_of_unreachable_database_prints_no_secret(vectorforge: CommandLine) -> None:
    done = vectorforge.process(
        "doctor",
        code=1,
        VECTORFORGE_DATABASE_URL="postgresql://vectorforge_app:s3cret@127.0.0.1:1/db",
        VECTORFORGE_OPENAI_API_KEY="sk-s3cret",
    )
    assert "fail database     The database cannot be reached: nothing listens there." in done.stdout
    assert "127.0.0.1, port 1." in done.stdout
    assert "credentials for openai" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_doctor_without_database_creates_none(vectorforge: CommandLine) -> None:
    nowhere = vectorforge.folder / "nowhere"
    report = vectorforge.json("doctor", "--data-dir", str(nowhere))
    assert report["ok"] is True
    details = {check["name"]: check["detail"] for check in report["checks"]}
    assert "created by `vectorforge up`" in details["database"]
    assert not nowhere.exists()


@pytest.mark.parametrize(
    "command",
    [
        "search x",
        "ask x",
        "collections list",
        "documents list",
        "stats",
        "index list",
        "limits show",
        "keys list",
    ],
)
def test_reading_command_without_database_names_the_folder_and_creates_none(
    vectorforge: CommandLine, command: str
) -> None:
    nowhere = vectorforge.folder / "nowhere"
    done = vectorforge(*command.split(), "--data-dir", str(nowhere), code=2)
    assert f"There is no database in {nowhere}. Check --data-dir" in done.stderr
    assert "`vectorforge up`" in done.stderr
    assert not nowhere.exists()


def test_doctor_lists_providers_and_unknown_variables(vectorforge: CommandLine) -> None:
    done = vectorforge(
        "doctor",
        "--json",
        "--data-dir",
        str(vectorforge.folder / "nowhere"),
        VECTORFORGE_GOOGLE_API_KEY="s3cret",
        VECTORFORGE_COHERE_API_KEY="s3cret",
        VECTORFORGE_OLLAMA_BASE_URL="http://127.0.0.1:1",
        VECTORFORGE_MAX_SERVE_BASE_URL="http://127.0.0.1:1",
        VECTORFORGE_OPENAI_APIKEY="s3cret",
    )
    checks = json.loads(done.stdout)["checks"]
    models = next(check for check in checks if check["name"] == "models")
    assert all(name in models["detail"] for name in ("google", "cohere", "ollama", "max_serve"))
    assert [c for c in checks if c["name"] == "settings" and c["status"] == "warn"] == [
        {
            "name": "settings",
            "status": "warn",
            "detail": "VECTORFORGE_OPENAI_APIKEY is not a setting and is ignored",
            "remedy": "Did you mean VECTORFORGE_OPENAI_API_KEY?",
        }
    ]
    assert "s3cret" not in done.stdout + done.stderr


def test_unknown_variable_is_reported_by_commands(vectorforge: CommandLine) -> None:
    done = vectorforge("collections", "list", VECTORFORGE_EMBEDDING_PROVIDER="openai", VECTORFORGE_FOO="1")
    assert "VECTORFORGE_EMBEDDING_PROVIDER is not a setting and is ignored. Did you mean" in done.stderr
    assert "VECTORFORGE_FOO is not a setting and is ignored. See docs/operate/" in done.stderr


def test_data_folder_that_is_a_file_is_rejected(vectorforge: CommandLine) -> None:
    (vectorforge.folder / "data.txt").write_text("")
    done = vectorforge("collections", "create", "x", "--data-dir", "data.txt", code=2)
    assert "data.txt is not a folder to write to; choose another with --data-dir." in done.stderr


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.0.1", "nothing listens there"), ("no.invalid", "the host name is unknown")]
)
@pytest.mark.parametrize("command", ["collections list", "migrate", "mcp"])
def test_unreachable_database_exits_with_host_and_reason(
    vectorforge: CommandLine, command: str, host: str, reason: str
) -> None:
    url = f"postgresql://app:s3cret@{host}:1/db"
    settings = {"VECTORFORGE_DATABASE_URL": url, "VECTORFORGE_MIGRATOR_DATABASE_URL": url}
    done = vectorforge(*command.split(), code=3, **settings)
    assert done.stderr == (
        f"error: The database cannot be reached: {reason}. The database URL names {host}, port 1.\n"
    )


@pytest.mark.parametrize(
    ("command", "code", "role"),
    [
        ("collections list", 2, ""),
        ("doctor", 1, ""),
        ("migrate", 2, "MIGRATOR_"),
        ("index list", 2, "MIGRATOR_"),
        ("logs replay handbook.md", 2, "LOG_WRITER_"),
        ("erase list", 2, "ERASER_"),
    ],
)
def test_malformed_database_url_error_names_its_variable(
    vectorforge: CommandLine, command: str, code: int, role: str
) -> None:
    sound, malformed = "postgresql://app:s3cret@127.0.0.1:1/db", "postgresql://app:s3%cret@127.0.0.1:1/db"
    variable = f"VECTORFORGE_{role}DATABASE_URL"
    settings = {"VECTORFORGE_DATABASE_URL": sound, variable: malformed}
    done = vectorforge(*command.split(), code=code, **settings)
    assert f"{variable} is not a URL that PostgreSQL understands" in done.stdout + done.stderr
    assert "cret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variables", "name", "status", "detail", "remedy"),
    [
        (
            {"VECTORFORGE_MODEL_CACHE_DIR": "/proc/nothing"},
            "embedding", "fail", "The local model cannot be stored", "Check VECTORFORGE_MODEL_CACHE_DIR.",
        ),
        (
            {
                "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "http",
                "VECTORFORGE_EMBEDDING_BASE_URL": "http://127.0.0.1:1/v1",
                "VECTORFORGE_EMBEDDING_MODEL": "m",
                "VECTORFORGE_EMBEDDING_DIMENSION": "8",
            },
            "embedding", "fail", "cannot be reached", "Check VECTORFORGE_EMBEDDING_BASE_URL. See docs/",
        ),
        (
            {"VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "opnai"},
            "embedding", "warn", 'Unknown embedding provider "opnai"; registered: local.', "Correct it",
        ),
        (
            {"VECTORFORGE_DEFAULT_LLM_PROVIDER": "openai"},
            "models", "warn", "Set VECTORFORGE_OPENAI_API_KEY to register openai.", "Correct it",
        ),
        ({"VECTORFORGE_LLM_FALLBACKS": '["x"]'}, "models", "fail", "names 'x'", "VECTORFORGE_LLM_FALLBACKS."),
        ({"VECTORFORGE_DATA_DIR": "handbook.md"}, "disk", "fail", "cannot be written to", "--data-dir"),
    ],
)  # fmt: skip
def test_doctor_names_the_setting_to_correct(
    vectorforge: CommandLine, variables: dict[str, str], name: str, status: str, detail: str, remedy: str
) -> None:
    folder = {"VECTORFORGE_DATA_DIR": str(vectorforge.folder / "nowhere")}
    code = int(status == "fail")
    done = vectorforge("doctor", "--json", code=code, **{**folder, **variables})
    [check] = [one for one in json.loads(done.stdout)["checks"] if one["name"] == name]
    assert check["status"] == status
    assert detail in check["detail"]
    assert remedy in check["remedy"]


def test_doctor_names_the_dimension_if_the_vectors_have_another(vectorforge: CommandLine) -> None:
    server = FakeEmbeddingsServer(dimension=8)
    thread = LoopThread(server, name="embeddings")
    settings = {
        "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "http",
        "VECTORFORGE_EMBEDDING_BASE_URL": server.base_url,
        "VECTORFORGE_EMBEDDING_MODEL": "m",
        "VECTORFORGE_EMBEDDING_DIMENSION": "9",
    }
    done = vectorforge("doctor", "--json", code=1, **settings)
    thread.close()
    [check] = [one for one in json.loads(done.stdout)["checks"] if one["name"] == "embedding"]
    assert "sent 8 dimensions; m has 9" in check["detail"]
    assert check["remedy"].startswith(
        "Check VECTORFORGE_EMBEDDING_DIMENSION and VECTORFORGE_EMBEDDING_MODEL. "
    )


def test_unavailable_default_provider_is_reported_by_commands(vectorforge: CommandLine) -> None:
    done = vectorforge("collections", "list", VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER="openai")
    assert "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER: Unknown embedding provider" in done.stderr
    assert "Set VECTORFORGE_OPENAI_API_KEY" in done.stderr
