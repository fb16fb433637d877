"""Erasure of a document: answers that used it are erased, and late records are emptied."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from tests.integration.erasure.conftest import BREAD, CANARY, RAG, digest_of_ids, erase, fill, rows_with
from tests.support.http.live_api import (
    LiveApi,
    finished_job,
)
from vectorforge.db.connection import Database
from vectorforge.db.repositories.conversation_repo import ConversationRepository
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository, QueryLogWriter
from vectorforge.erasure.repo import (
    LogPolicy,
    Subject,
)
from vectorforge.errors import NotFoundError


class TestDocument:
    @pytest.mark.parametrize("logs", ["text", "rows"])
    async def test_erased_document_erases_its_answers_only(
        self,
        client: httpx2.AsyncClient,
        direct_database: Database,
        superuser: Any,
        tenants: tuple[str, str],
        logs: LogPolicy,
    ) -> None:
        _, document, conversation = await fill(client)
        bike = {"query": "How often must I oil the chain?", "filters": {"kind": "bike"}}
        unaffected = (await client.post(RAG, json=bike)).json()
        done = await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)), logs)
        assert done.counts["documents"] == 1
        assert done.counts["chunks"] == done.counts["embeddings"] == 1
        assert f"{int(done.digests['documents'], 2):064x}" == digest_of_ids([document])
        assert rows_with(superuser, tenants[0], CANARY) == {}
        logged = (await client.get("/v1/queries")).json()["queries"]
        assert len(logged) == (5 if logs == "text" else 1)
        texts = {row["query_text"] for row in logged}
        assert texts == ({bike["query"], ""} if logs == "text" else {bike["query"]})
        messages = (await client.get(f"/v1/conversations/{conversation}")).json()["messages"]
        assert [message["content"] for message in messages] == ["[erased]", "[erased]"]
        # the other document still answers
        assert (await client.post(RAG, json=bike)).json()["response"] == unaffected["response"]
        assert (await client.get(f"/v1/documents/{document}")).status_code == 404

    async def test_answer_of_erased_document_is_not_served_from_cache(
        self, client: httpx2.AsyncClient
    ) -> None:
        """Neither from this process's memory nor from the table: the data version has changed."""
        _, document, _ = await fill(client)
        question = {"query": f"How long must the {CANARY} dough rise?"}
        assert CANARY in (await client.post(RAG, json=question)).json()["response"]
        answer = await client.delete(f"/v1/documents/{document}")
        assert (answer.status_code, answer.json()["certificate"]["document_id"]) == (200, document)
        assert CANARY not in (await client.post(RAG, json=question)).json()["response"]
        assert (await client.delete(f"/v1/documents/{document}")).status_code == 404

    async def test_late_log_records_of_erased_document_are_emptied(
        self,
        client: httpx2.AsyncClient,
        direct_database: Database,
        log_writer: QueryLogWriter,
        tenants: tuple[str, str],
    ) -> None:
        collection, document, _ = await fill(client)
        chunk = (await client.get(f"/v1/documents/{document}/chunks")).json()["chunks"][0]["id"]
        await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)))
        late = QueryLog(uuid4(), UUID(collection), CANARY, [uuid4(), UUID(chunk)], CANARY, 1.0)
        other = replace(late, id=uuid4(), retrieved_chunk_ids=[uuid4()])
        started = replace(late, retrieved_chunk_ids=[], generated_response="", outcome="started")
        await log_writer.write([(tenants[0], started)])
        await log_writer.write([(tenants[0], late), (tenants[0], other)])
        logs = QueryLogRepository(direct_database.for_tenant(tenants[0]))
        found = [await logs.find_by_id(log.id) for log in (late, other)]
        assert [(log.query_text, log.generated_response) for log in found if log] == [
            ("", ""),
            (CANARY, CANARY),
        ]

    @pytest.mark.parametrize("log_first", [True, False])
    @pytest.mark.parametrize("logs", ["text", "rows"])
    async def test_messages_of_late_log_record_are_erased(
        self,
        client: httpx2.AsyncClient,
        direct_database: Database,
        log_writer: QueryLogWriter,
        tenants: tuple[str, str],
        logs: LogPolicy,
        log_first: bool,
    ) -> None:
        """Messages are stored separately from the log record, before or after it."""
        collection, document, conversation = await fill(client)
        chunk = (await client.get(f"/v1/documents/{document}/chunks")).json()["chunks"][0]["id"]
        await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)), logs)
        late = QueryLog(uuid4(), UUID(collection), CANARY, [UUID(chunk)], CANARY, 1.0)
        conversations = ConversationRepository(
            direct_database.for_tenant(tenants[0]), max_conversations=9, max_messages=99
        )
        if log_first:
            await log_writer.write([(tenants[0], late)])
        assert await conversations.append(UUID(conversation), CANARY, CANARY, late.id)
        if not log_first:
            await log_writer.write([(tenants[0], late)])
        messages = (await client.get(f"/v1/conversations/{conversation}")).json()["messages"]
        assert [message["content"] for message in messages] == ["[erased]"] * 4

    async def test_waiting_job_does_not_restore_erased_document(
        self, api: LiveApi, client: httpx2.AsyncClient, direct_database: Database, tenants: tuple[str, str]
    ) -> None:
        collection, document, _ = await fill(client)
        await api.application.background.worker.stop()
        again = {"source": "bread.md", "text": BREAD + "More.", "media_type": "text/markdown"}
        path = f"/v1/collections/{collection}/documents"
        job = (await client.post(path, json={"documents": [again]})).json()
        done = await erase(direct_database, tenants[0], Subject("document", document_id=UUID(document)))
        assert done.counts["ingestion_job_items"] == 2
        api.application.background.worker.start()
        await finished_job(client, job["id"])
        assert (await client.get(path)).json()["total"] == 1

    async def test_erasure_of_unknown_subject_raises_not_found(
        self, direct_database: Database, make_tenant: Any
    ) -> None:
        for subject in (
            Subject("document", document_id=uuid4()),
            Subject("collection", uuid4()),
            Subject("profile", uuid4(), profile_id=1),
        ):
            with pytest.raises(NotFoundError):
                await erase(direct_database, make_tenant(), subject)
