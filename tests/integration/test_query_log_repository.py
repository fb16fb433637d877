"""The query log in PostgreSQL, directly and through PgBouncer."""

from uuid import uuid4

import pytest

from tests.integration.repository_rows import make_log
from vectorforge.db.repositories.query_log_repo import QueryLogRepository
from vectorforge.db.tenant_database import TenantDatabase


class TestQueryLogs:
    async def test_logged_query_is_found(self, tenant_db: TenantDatabase) -> None:
        repo = QueryLogRepository(tenant_db)
        log = make_log(
            uuid4(), outcome="error", error_code="llm_error", error_stage="generate", prompt_tokens=7
        )
        await repo.create(log)
        found = await repo.find_by_id(log.id)
        assert found is not None
        assert found.created_at is not None
        assert found.retrieved_chunk_ids == log.retrieved_chunk_ids
        assert (found.outcome, found.error_stage, found.prompt_tokens) == ("error", "generate", 7)
        assert await repo.find_by_id(uuid4()) is None

    async def test_log_delivered_twice_is_stored_once(self, tenant_db: TenantDatabase) -> None:
        repo = QueryLogRepository(tenant_db)
        log = make_log(uuid4())
        for _ in range(2):
            await repo.create(log)
        assert len(await repo.list()) == 1

    @pytest.mark.parametrize("beside", ["SELECT 1 / 0", "SELECT pg_sleep(30)"])
    async def test_log_with_failing_statement_is_stored_alone(
        self, tenant_db: TenantDatabase, beside: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        repo = QueryLogRepository(tenant_db)
        log = make_log(uuid4())
        await repo.create_with(log, [(beside, ())], timeout_s=0.3)
        assert [row.id for row in await repo.list()] == [log.id]
        assert "The answer was not cached" in caplog.text

    async def test_log_with_unstorable_text_is_stored_with_replacements(
        self, tenant_db: TenantDatabase
    ) -> None:
        repo = QueryLogRepository(tenant_db)
        await repo.create(make_log(uuid4(), query_text="a\0b", generated_response="half \ud800 pair 🙂"))
        (found,) = await repo.list()
        assert found.query_text == "a\ufffdb"
        assert found.generated_response.endswith("pair 🙂")

    async def test_list_filters_by_collection_and_outcome(self, tenant_db: TenantDatabase) -> None:
        repo = QueryLogRepository(tenant_db)
        first, second = uuid4(), uuid4()
        for collection_id, outcome in ((first, "answered"), (first, "error"), (second, "answered")):
            await repo.create(make_log(collection_id, outcome=outcome))
        assert [log.outcome for log in await repo.list(first)] == ["error", "answered"]
        assert len(await repo.list(outcome="answered")) == 2
        assert len(await repo.list(first, outcome="error")) == 1
        assert len(await repo.list(limit=1, offset=1)) == 1
