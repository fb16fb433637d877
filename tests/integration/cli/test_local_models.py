"""Models in folders on the command line: next to the bundled one, and where that one meets German."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.vendors.onnx_folders import DIMENSION, embedding_folder, reranker_folder

GERMAN = """# Erstattungen

Die Buchhaltung genehmigt jede Erstattung über fünfhundert Euro innerhalb von zwei Werktagen. Kunden
können die Geräte innerhalb von vierzehn Tagen zurückgeben.
"""
NOTE = "found by words but hardly by meaning: all-MiniLM-L6-v2 was trained on en. Set VECTORFORGE_LOCAL_"


@pytest.fixture
def german(vectorforge: CommandLine) -> str:
    (vectorforge.folder / "erstattung.md").write_text(GERMAN)
    return "erstattung.md"


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Any]:
    return {
        "VECTORFORGE_LOCAL_EMBEDDING_PATH": str(embedding_folder(tmp_path / "embedding")),
        "VECTORFORGE_RERANK_MODEL_PATH": str(reranker_folder(tmp_path / "reranker")),
        "VECTORFORGE_RERANK_TIMEOUT_S": "20",
    }


def checks_of(report: dict[str, Any], name: str) -> list[dict[str, str]]:
    return [check for check in report["checks"] if check["name"] == name]


def test_german_document_for_english_model_is_noted_once(handbook: CommandLine, german: str) -> None:
    done = handbook("ingest", german, "handbook.md", "-c", "mixed")
    assert done.stderr.count(f'"mixed" has documents in de, which are {NOTE}') == 1
    assert handbook.json("ingest", german, "-c", "mixed")["language_note"].startswith('"mixed" has documents')
    assert handbook.json("ingest", "handbook.md", "-c", "handbook")["language_note"] is None
    report = handbook.json("doctor")
    assert report["ok"] is True
    [check] = checks_of(report, "languages")
    assert check["status"] == "warn"
    assert check["detail"].startswith('"mixed" has documents in de, which are found by words')
    assert check["remedy"].startswith("Set VECTORFORGE_LOCAL_EMBEDDING_PATH")


def test_folder_models_embed_and_rerank_next_to_bundled_model(
    handbook: CommandLine, german: str, models: dict[str, Any]
) -> None:
    def run(*arguments: str) -> Any:
        return json.loads(handbook(*arguments, "--json", **models).stdout)

    assert run("ingest", german, "-c", "folder")["language_note"] is None
    made = run("collections", "show", "folder")
    assert made["embedding_model"].startswith("tiny@")
    assert made["dimension"] == DIMENSION
    (handbook.folder / "words.jsonl").write_text(
        "\n".join(
            json.dumps({"id": text, "text": text}) for text in ("the dog barks", "cats sleep", "the cats")
        )
    )
    run("ingest", "words.jsonl", "-c", "words")
    found = run("search", "cats sleep", "-c", "words")["results"]
    assert [hit["text"] for hit in found] == ["cats sleep", "the cats", "the dog barks"]
    assert found[0]["relevance"] == pytest.approx(0.88, abs=0.01)  # the sigmoid of two words
    old = run("search", "Who approves refunds?", "-c", "handbook")["results"]
    assert "finance team" in old[0]["text"]
    report = run("doctor")
    assert report["ok"] is True
    [embedding], [reranker] = checks_of(report, "embedding"), checks_of(report, "reranker")
    assert embedding["detail"].startswith("local/tiny@")
    assert reranker["detail"].startswith("tiny@")
    assert "32 chunks in" in reranker["detail"]


def test_doctor_with_changed_models_fails(vectorforge: CommandLine, models: dict[str, Any]) -> None:
    for folder in (models["VECTORFORGE_LOCAL_EMBEDDING_PATH"], models["VECTORFORGE_RERANK_MODEL_PATH"]):
        with (Path(folder) / "model.onnx").open("ab") as file:
            file.write(b" ")
    nowhere = str(vectorforge.folder / "nowhere")
    done = vectorforge("doctor", "--json", "--data-dir", nowhere, code=1, **models)
    report = json.loads(done.stdout)
    for name, folder in zip(("embedding", "reranker"), models, strict=False):
        [check] = checks_of(report, name)
        assert (check["status"], check["remedy"]) == ("fail", f"Check {folder}.")
        assert "model.onnx has the sha256" in check["detail"]
