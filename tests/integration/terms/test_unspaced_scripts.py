"""Words of scripts without spaces: found by pairs of characters."""

import pytest

from tests.integration.terms.conftest import COSINE, Store
from vectorforge.db.tenant_database import TenantDatabase

TEXTS = {
    "Chinese": ("东京是日本的首都，人口超过一千万。", "首都"),
    "Japanese": ("払い戻しは十四日以内に申請してください。", "申請期限は十四日ですか"),
    "Thai": ("ลูกค้าขอคืนเงินได้ภายในสิบสี่วัน", "คืนเงิน"),
    "Khmer": ("ភ្នំពេញជារាជធានីនៃប្រទេសកម្ពុជា", "រាជធានី"),
    "Burmese": ("ရန်ကုန်သည်မြန်မာနိုင်ငံ၏မြို့ကြီးဖြစ်သည်", "မြို့ကြီး"),
    "Lao": ("ວຽງຈັນເປັນນະຄອນຫຼວງຂອງລາວ", "ນະຄອນຫຼວງ"),
    "mixed": ("升级到 PostgreSQL 18 之前请备份数据库。", "postgresql 备份"),
    "English": ("The warranty covers two years.", "warranties"),
}


async def best(store: Store, query: str) -> str | None:
    found = await store.vectors.search(
        query_vector=None, top_k=3, collection_id=store.id, metric=COSINE, query_text=query
    )
    return next((hit.chunk.text for hit in found), None)


@pytest.mark.parametrize("script", TEXTS)
async def test_part_of_sentence_finds_its_chunk(store: Store, script: str) -> None:
    await store.put([text for text, _ in TEXTS.values()])
    text, query = TEXTS[script]
    assert await best(store, query) == text


async def test_text_of_other_script_is_not_found(store: Store) -> None:
    await store.put([TEXTS["Chinese"][0], TEXTS["English"][0]])
    assert await best(store, "คืนเงิน") is None


async def test_punctuation_between_runs_makes_no_pair(tenant_db: TenantDatabase) -> None:
    rows = await tenant_db.fetch_all(
        "SELECT lexeme, frequency FROM vectorforge.lexemes('english', %s) ORDER BY lexeme COLLATE \"C\"",
        ("今天，今天。雨 days",),
    )
    assert [(row["lexeme"], row["frequency"]) for row in rows] == [("day", 1), ("今天", 2), ("雨", 1)]
