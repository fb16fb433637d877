"""Languages of documents over HTTP: detected, shown, filtered by, and searched in."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest

from tests.support.http.live_api import finished_job, live_api, new_collection, settings_for
from tests.support.vendors.onnx_folders import embedding_folder
from vectorforge.embedding.providers.local import LocalEmbeddingProvider

TEXTS = {
    "de": "Kunden können die Geräte innerhalb von vierzehn Tagen zurückgeben. Die Häuser nehmen sie an.",
    "en": "Customers may return the devices within fourteen days. The houses take them for free.",
    "fr": "Les clients peuvent rendre les appareils dans les quatorze jours. Les maisons les reprennent.",
}
OTHER_TEXTS = {
    "el": "Οι πελάτες μπορούν να επιστρέψουν τις συσκευές εντός δεκατεσσάρων ημερών χωρίς χρέωση.",
    "vi": "Khách hàng có thể trả lại thiết bị trong vòng mười bốn ngày mà không mất phí nào cả.",
    "zh": "客户可以在十四天内退回设备，不收取任何费用。商店会免费接收这些设备并退还全部款项。",
}


@pytest.fixture
async def client(app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[httpx2.AsyncClient]:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as opened:
        yield opened


async def test_documents_of_three_languages_are_listed_filtered_and_found(
    client: httpx2.AsyncClient,
) -> None:
    collection_id = await new_collection(client, "returns")
    files = [("files", (f"{name}.txt", text.encode(), "text/plain")) for name, text in TEXTS.items()]
    files.append(("files", ("short.txt", b"Haus", "text/plain")))
    response = await client.post(f"/v1/collections/{collection_id}/documents", files=files)
    assert (await finished_job(client, response.json()["id"]))["status"] == "succeeded"

    listed = (await client.get(f"/v1/collections/{collection_id}/documents")).json()["documents"]
    assert {d["source"]: d["metadata"] for d in listed} == {
        **{f"{name}.txt": {"language": name} for name in TEXTS},
        "short.txt": {},
    }
    shown = (await client.get(f"/v1/collections/{collection_id}")).json()
    assert (shown["language"], shown["detect_language"]) == ("english", True)
    assert shown["languages"] == ["english", "french", "german"]

    query = {"query": "Haus maison", "collection": collection_id, "search_mode": "lexical"}
    found = (await client.post("/v1/search", json=query)).json()["results"]
    assert {hit["text"] for hit in found} == {TEXTS["de"], TEXTS["fr"], "Haus"}
    filtered = {**query, "filters": {"language": "fr"}}
    [hit] = (await client.post("/v1/search", json=filtered)).json()["results"]
    assert hit["metadata"]["language"] == "fr"


async def test_language_of_collection_is_set_and_detected_again(client: httpx2.AsyncClient) -> None:
    body = {"name": "fixed", "language": "german"}
    made = (await client.post("/v1/collections", json=body)).json()
    assert (made["language"], made["detect_language"], made["languages"]) == ("german", False, [])
    path = f"/v1/collections/{made['id']}"
    changed = (await client.patch(path, json={"language": "auto"})).json()
    assert (changed["language"], changed["detect_language"]) == ("english", True)
    refused = await client.patch(path, json={"language": "klingon"})
    assert "auto" in refused.json()["detail"]


async def test_documents_in_languages_that_the_model_was_not_trained_with_are_noted(
    app_url: str, make_tenant: Callable[[], str], tmp_path: Path
) -> None:
    tenant = make_tenant()
    folder = embedding_folder(tmp_path, languages=["en"])
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        api.application.embedding_registry.register(LocalEmbeddingProvider(folder=folder))
        body = {"name": "returns", "embedding_provider": "local"}
        made = (await client.post("/v1/collections", json=body)).json()
        assert made["embedding_model"].startswith("tiny@")
        path = f"/v1/collections/{made['id']}/documents"
        notes = []
        for language in ("en", "de"):
            upload = [("files", (f"{language}.txt", TEXTS[language].encode(), "text/plain"))]
            job = await finished_job(client, (await client.post(path, files=upload)).json()["id"])
            assert job["status"] == "succeeded"
            notes.append((await client.get(path)).json()["language_note"])
        assert notes[0] is None
        assert notes[1].startswith('"returns" has documents in de, which are found by words')


@pytest.mark.parametrize(
    ("trained_on", "text", "query", "settings", "weight"),
    [
        (["en"], TEXTS["en"], "return devices", {}, 0.5),
        (["en"], TEXTS["de"], "Geräte zurückgeben", {}, 0.3),
        (["en"], "Geräte", "Geräte", {"language": "german"}, 0.3),
        (["en"], TEXTS["en"], "return devices", {"language": "simple"}, 0.5),
        (["en"], OTHER_TEXTS["el"], "επιστρέψουν συσκευές", {}, 0.1),
        (["en"], OTHER_TEXTS["vi"], "trả lại thiết bị", {}, 0.3),
        (["en"], OTHER_TEXTS["zh"], "USB 设备可以退回", {}, 0.1),
        (["en"], TEXTS["de"], "Geräte zurückgeben", {"dense_weight": 0.4}, 0.4),
        (["en", "de"], TEXTS["de"], "Geräte zurückgeben", {}, 0.5),
    ],
    ids=[
        "known",
        "foreign",
        "named",
        "unstemmed",
        "script",
        "vietnamese",
        "chinese",
        "own weight",
        "two languages",
    ],
)
async def test_vectors_of_an_english_model_weigh_less_in_other_languages(
    app_url: str,
    make_tenant: Callable[[], str],
    tmp_path: Path,
    trained_on: list[str],
    text: str,
    query: str,
    settings: dict[str, object],
    weight: float,
) -> None:
    tenant = make_tenant()
    folder = embedding_folder(tmp_path, languages=trained_on)
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        api.application.embedding_registry.register(LocalEmbeddingProvider(folder=folder))
        body = {"name": "returns", "embedding_provider": "local", **settings}
        collection = (await client.post("/v1/collections", json=body)).json()["id"]
        upload = [("files", ("returns.txt", text.encode(), "text/plain"))]
        job = (await client.post(f"/v1/collections/{collection}/documents", files=upload)).json()["id"]
        assert (await finished_job(client, job))["status"] == "succeeded"

        found = await client.post(
            "/v1/search", json={"query": query, "collection": collection, "min_score": -1}
        )
        [hit] = found.json()["results"]
        by_words = 2 / 3
        assert (by_words - hit["relevance"]) / (by_words - max(hit["score"], 0)) == pytest.approx(weight)
