"""Rows 35 to 37 and 43: faults during ingestion, concurrent with queries."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import httpx2

from tests.campaigns.faults.database_faults import background
from tests.campaigns.faults.fault import Fault
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import TENANT, System

_WRITERS = 50
_DOCUMENTS = 30
_JOB_TIMEOUT_S = 240
_UNFIT = "UNFIT FOR EMBEDDING"

_CURRENT = """
SELECT d.source, count(DISTINCT d.id) AS documents, max(d.version) AS version, count(c.id) AS chunks,
    count(DISTINCT c.ordinal) AS places, min(c.text) AS first_text, max(c.text) AS last_text
FROM vectorforge.documents AS d
LEFT JOIN vectorforge.chunks AS c
    ON c.tenant_id = d.tenant_id AND c.document_id = d.id AND c.to_version IS NULL
WHERE d.tenant_id = %s AND d.source LIKE %s GROUP BY d.source
"""


async def collection_for(client: httpx2.AsyncClient, name: str) -> str:
    """Create a collection, and return its id."""
    response = await client.post("/v1/collections", json={"name": name})
    response.raise_for_status()
    return str(response.json()["id"])


async def submit(client: httpx2.AsyncClient, collection: str, documents: Sequence[dict[str, Any]]) -> str:
    """Submit documents, and return the job's id."""
    response = await client.post(f"/v1/collections/{collection}/documents", json={"documents": documents})
    response.raise_for_status()
    return str(response.json()["id"])


async def ended(client: httpx2.AsyncClient, job: str) -> dict[str, Any]:
    """Wait until the job is finished, and return it; the service may be unavailable meanwhile."""
    async with asyncio.timeout(_JOB_TIMEOUT_S):
        while True:
            try:
                found = await client.get(f"/v1/jobs/{job}")
            except httpx2.TransportError:
                found = None
            if found is not None and found.status_code == 200:
                state: dict[str, Any] = found.json()
                if state["status"] not in ("queued", "running"):
                    return state
            await asyncio.sleep(0.1)


class UnfitPassage(Fault):
    number = 35
    name = "a text that the embedder rejects among nine good documents"
    client_sees = "a full answer; the job names the one document"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        system.surroundings.embeddings.refused_text = _UNFIT
        collection = await collection_for(load.client, "fault-35")
        documents = [{"source": f"fault-35/{n}", "text": f"Document {n} is good."} for n in range(9)]
        documents.append({"source": "fault-35/unfit", "text": _UNFIT})
        try:
            job = await submit(load.client, collection, documents)
            yield
            self._job = await ended(load.client, job)
        finally:
            system.surroundings.embeddings.refused_text = None

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        counted = (self._job["documents_done"], self._job["documents_failed"])
        return [] if counted == (9, 1) else [f"{counted} documents done and failed, not (9, 1)"]


class SameDocument(Fault):
    number = 36
    name = f"{_WRITERS} writers of one document at the same time"
    client_sees = "a full answer; one document, the passages of one writer"

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        collection = await collection_for(load.client, "fault-36")

        async def write(writer: int) -> dict[str, Any]:
            text = "\n\n".join(f"Writer {writer:02} wrote this. " * 40 for _ in range(3))
            documents = [{"source": "fault-36/same", "text": text}]
            return await ended(load.client, await submit(load.client, collection, documents))

        writing = asyncio.gather(*(write(writer) for writer in range(_WRITERS)))
        yield
        self._jobs = await writing

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        (row,) = await system.fetch(_CURRENT, (TENANT, "fault-36/%"))
        found = []
        if row["documents"] != 1 or row["chunks"] != row["places"] or not row["chunks"]:
            found.append(f"{row['documents']} documents, {row['chunks']} chunks at {row['places']} places")
        if row["first_text"][:9] != row["last_text"][:9]:
            found.append("a mixture of two writers' passages")
        failed = [job for job in self._jobs if job["status"] != "succeeded"]
        return found + ([f"{len(failed)} writers failed: {failed[0]['status']}"] if failed else [])


class KilledIngester(Fault):
    number = 37
    name = "kill -9 of the service while it ingests, three times"
    client_sees = "an answer or a cut connection; every document once, in its new version"
    cuts = True

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        collection = await collection_for(load.client, "fault-37")
        for version in ("old", "new"):
            documents = [
                {"source": f"fault-37/{n:02}", "text": f"Document {n} is {version}. " * 60}
                for n in range(_DOCUMENTS)
            ]
            job = await submit(load.client, collection, documents)
            if version == "old":
                await ended(load.client, job)

        async def kill() -> None:
            for share in (0.1, 0.3, 0.5):
                await load.until_ended(share)
                await system.service.kill()
                await system.service.start()

        async with background(kill()):
            yield
        self._job = await ended(load.client, job)

    def wrong(self, answer: Answer) -> str:
        return "" if answer.is_answer or answer.cut else "neither an answer nor a cut connection"

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        rows = await system.fetch(_CURRENT, (TENANT, "fault-37/%"))
        found = [] if answers[-1].is_answer else ["not answered after the last start"]
        if self._job["status"] != "succeeded" or self._job["documents_done"] != _DOCUMENTS:
            found.append(f"the job {self._job['status']}, {self._job['documents_done']} documents done")
        if len(rows) != _DOCUMENTS or any(row["documents"] != 1 for row in rows):
            found.append(f"{len(rows)} documents")
        wrong = [row for row in rows if row["chunks"] != row["places"] or "is new" not in row["first_text"]]
        return found + ([f"{len(wrong)} documents doubled, mixed or old"] if wrong else [])


class GrowingDocuments(Fault):
    number = 43
    name = "a small .docx of 201 MB and HTML nested 200,000 deep, with a good document"
    client_sees = "a full answer; the job names the two"
    settings: ClassVar[Mapping[str, str]] = {"extraction_timeout_s": "10"}

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        collection = await collection_for(load.client, "fault-43")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("word/document.xml", bytes(201 * 1024 * 1024))
        files = [
            ("files", ("bomb.docx", packed.getvalue())),
            ("files", ("deep.html", b"<div>" * 200_000 + b"deep")),
            ("files", ("good.txt", b"A good document.")),
        ]
        response = await load.client.post(f"/v1/collections/{collection}/documents", files=files)
        response.raise_for_status()
        yield
        self._job = await ended(load.client, response.json()["id"])

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        counted = (self._job["documents_done"], self._job["documents_failed"])
        return [] if counted == (1, 2) else [f"{counted} documents done and failed, not (1, 2)"]


INGESTION_FAULTS: tuple[type[Fault], ...] = (
    UnfitPassage,
    SameDocument,
    KilledIngester,
    GrowingDocuments,
)
