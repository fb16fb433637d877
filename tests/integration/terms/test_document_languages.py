"""Words of each document by its own language, and queries of collections of several languages."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.integration.terms.conftest import COSINE, Check, Store
from tests.support.rag.drafts import texts_of
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import SearchSettings

GERMAN = "Die Häuser der Gemeinde wurden verkauft."
ENGLISH = "The houses of the parish were sold."
FRENCH = "Les maisons de la commune ont été vendues."


async def put(store: Store, language: str | None, text: str, **metadata: Any) -> UUID:
    fields = metadata if language is None else {"language": language, **metadata}
    return await store.put([text], f"{language}-{uuid4()}.md", title=None, metadata=fields)


async def found(store: Store, query: str, **options: Any) -> list[str]:
    return texts_of(
        await store.vectors.search(
            query_vector=None, top_k=9, collection_id=store.id, metric=COSINE, query_text=query, **options
        )
    )


async def languages(store: Store) -> list[str]:
    collection = await CollectionRepository(store.db).find_by_id(store.id)
    assert collection is not None
    return list(collection.languages)


async def configurations(db: TenantDatabase) -> list[str]:
    rows = await db.fetch_all("SELECT language FROM vectorforge.chunk_terms ORDER BY number")
    return [row["language"] for row in rows]


@pytest.mark.parametrize(
    ("language", "configuration"),
    [
        ("de", "german"),
        ("de-AT", "german"),
        ("pt_BR", "portuguese"),
        ("German", "german"),
        ("ar", "arabic"),
        ("hi", "hindi"),
        ("el", "greek"),
        ("tr", "turkish"),
        ("nb", "norwegian"),
        ("ko", "simple"),
        ("pl", "vectorforge.truncated"),
        ("uk-UA", "vectorforge.truncated"),
        ("vi", "simple"),
        ("he", "vectorforge.hebrew"),
        ("ms", "indonesian"),
        ("zh", "english"),
        ("th", "english"),
        ("python", "english"),
        (None, "english"),
        (7, "english"),
        (["de"], "english"),
    ],
)
async def test_language_of_document_chooses_its_configuration(
    tenant_db: TenantDatabase, language: Any, configuration: str
) -> None:
    from psycopg.types.json import Jsonb

    metadata = Jsonb({"language": language} if language is not None else {})
    row = await tenant_db.fetch_one("SELECT vectorforge.text_config('english', true, %s) AS it", (metadata,))
    assert row == {"it": configuration}


async def test_mixed_collection_is_searched_in_every_language(store: Store, check: Check) -> None:
    await put(store, "de", GERMAN)
    await put(store, "en", ENGLISH)
    await put(store, "fr", FRENCH)
    assert await configurations(store.db) == ["german", "english", "french"]
    assert await languages(store) == ["english", "french", "german"]
    assert await found(store, "Haus verkaufen") == [GERMAN]  # the stems of Häuser and verkauft
    assert await found(store, "house") == [ENGLISH]
    assert await found(store, "maison vendue") == [FRENCH]


async def test_words_of_language_without_stemmer_are_found_by_their_first_letters(store: Store) -> None:
    text = "Siedzibą spółki Nowa-Huta S.A. jest Warszawa, numer KRS0000123456."
    await put(store, "pl", text)
    await put(store, "pl", "Warsztat samochodowy w Krakowie.")
    assert (await found(store, "Jaka siedziba? Warszawska"))[0] == text
    assert await found(store, "spółka") == [text]
    assert await found(store, "KRS0000123456") == [text]
    assert await found(store, "KRS0000999999") == []


async def test_hebrew_words_are_found_without_their_particles(store: Store) -> None:
    text = "הממשלה החליטה לקנות בתים בירושלים ובחיפה, מספר KRS-12."
    await put(store, "he", text)
    await put(store, "he", "הגשם ירד כל הלילה בצפון הארץ.")
    assert await configurations(store.db) == ["vectorforge.hebrew"] * 2
    assert await found(store, "ירושלים") == [text]
    assert await found(store, "מחיפה") == [text]
    assert await found(store, "ירושלמי") == [text]
    assert await found(store, "KRS-12") == [text]
    assert await found(store, "שלג") == []


async def test_stop_words_of_query_language_are_not_searched_in_others(store: Store) -> None:
    await put(store, "en", ENGLISH)
    await put(store, "de", "Der Roman trägt den Titel The Parish of Them und spielt in Wien.")
    assert await found(store, "of the") == []
    assert await found(store, "which of the houses were those") == [ENGLISH]


async def test_forms_of_a_word_by_several_languages_weigh_as_one_word(store: Store) -> None:
    for town in ("Πάτρας", "Λάρισας", "Δράμας", "Θήβας", "Αθήνας"):
        await put(store, "el", f"Οι σχολές της {town} είναι δημόσιες.")
    await put(store, None, "Οι σχολές της επαρχίας είναι ιδιωτικές.")
    assert await languages(store) == ["english", "greek"]
    first = (await found(store, "Είναι της Αθήνας οι σχολές;"))[0]
    assert first == "Οι σχολές της Αθήνας είναι δημόσιες."


async def test_word_of_query_and_context_counts_once(store: Store) -> None:
    await put(store, "de", GERMAN)
    await put(store, "en", ENGLISH)

    async def score(**options: Any) -> float:
        [hit] = await store.vectors.search(
            query_vector=None, top_k=1, collection_id=store.id, metric=COSINE, query_text="Haus", **options
        )
        return hit.lexical_score or 0.0

    assert await score(context_text="Haus") == await score()
    assert await score(context_text="verkauft") > await score()


async def test_collection_of_one_language_has_one_configuration(store: Store) -> None:
    await put(store, "de", GERMAN)
    await put(store, "de", "Kinder spielten im Garten.")
    assert await languages(store) == ["german"]
    assert await found(store, "kind garten") == ["Kinder spielten im Garten."]


async def test_document_of_unknown_language_uses_that_of_the_collection(store: Store) -> None:
    await put(store, None, "running dogs")
    assert await configurations(store.db) == ["english"]
    assert await found(store, "dog run") == ["running dogs"]


async def test_language_set_for_collection_applies_to_every_document(store: Store) -> None:
    repo = CollectionRepository(store.db)
    await repo.set_search(store.id, SearchSettings(language="simple"))
    await put(store, "de", GERMAN)
    assert await configurations(store.db) == ["simple"]
    assert await found(store, "haus") == []


async def test_change_between_set_and_detected_language_indexes_again(store: Store) -> None:
    repo = CollectionRepository(store.db)
    await put(store, "de", GERMAN)
    for language, detects, expected in (("simple", False, "simple"), ("auto", True, "german")):
        changed = await repo.set_search(store.id, SearchSettings(language=language))
        assert changed is not None
        assert (changed.detect_language, changed.terms_complete) == (detects, False)
        read = "SELECT state FROM vectorforge.read_terms(%s, 100)"
        while (row := await store.db.fetch_one(read, (store.id,))) and row["state"] != "complete":
            assert row["state"] == "more"
        assert await configurations(store.db) == [expected]
    assert await found(store, "haus") == [GERMAN]


async def test_setting_the_language_that_all_documents_have_indexes_nothing(store: Store) -> None:
    await put(store, "de", GERMAN)
    changed = await CollectionRepository(store.db).set_search(store.id, SearchSettings(language="german"))
    assert changed is not None
    assert (changed.language, changed.detect_language, changed.terms_complete) == ("german", False, True)


async def test_new_language_of_stored_document_indexes_its_chunks_again(store: Store, check: Check) -> None:
    await store.put([GERMAN], "a.md", title=None, metadata={})
    assert await found(store, "haus") == []
    await store.put([GERMAN], "a.md", title=None, metadata={"language": "de"})
    assert await configurations(store.db) == ["german"]
    assert await found(store, "haus") == [GERMAN]


async def test_language_filters_search(store: Store) -> None:
    await put(store, "de", "Paris im Regen")
    await put(store, "fr", "Paris sous la pluie")
    assert await found(store, "paris", filters={"language": "fr"}) == ["Paris sous la pluie"]


@pytest.mark.parametrize(
    ("language", "text", "query"),
    [
        ("ar", "متى بدأت «الحرب»؟", "الحرب"),
        ("el", "Πού είναι η Αθήνα; Στην «Ελλάδα»·", "ελλάδα"),
        ("hi", "यह भारत। है॥", "भारत"),
        ("es", "¿Dónde está “Granada”? ¡Aquí!", "granada"),
        ("de", "Er nannte es „Freiheit“ – immer.", "freiheit"),
        ("en", "They call it ‘freedom’…", "freedom"),
        ("ko", "서울은 대한민국의 수도이다.", "대한민국"),
    ],
)
async def test_punctuation_and_particles_do_not_hide_words(
    store: Store, language: str, text: str, query: str
) -> None:
    await put(store, language, text)
    assert await found(store, query) == [text]
