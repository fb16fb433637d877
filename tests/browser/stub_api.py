"""An in-memory server of the HTTP API with scripted faults and answers, for the web page's tests."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import uuid4

from aiohttp import web

from tests.browser.answer_script import Json, Refuse, Step, answer
from tests.browser.played_answer import PlayedAnswer
from tests.browser.stub_conversations import StubConversations
from tests.browser.stub_search import StubSearch
from vectorforge.api.native.pages import page_response

PAGES = {"/": "index.html", "/statistics": "statistics.html", "/source": "source.html"}


@dataclass
class StubApi:
    """State of the server: its data, its next actions and the received requests."""

    collections: list[Json] = field(default_factory=list)
    documents: list[Json] = field(default_factory=list)
    language_note: str | None = None
    jobs: dict[str, Json] = field(default_factory=dict)
    scripts: list[list[Step]] = field(default_factory=list)
    """Next answers, first in first out."""
    queries: list[Json] = field(default_factory=list)
    """Bodies of the received queries."""
    requests: list[str] = field(default_factory=list)
    """Method and path of every request."""
    ingestion_errors: dict[str, str] = field(default_factory=dict)
    """Error of a file's ingestion, by file name."""
    ingestion_gate: asyncio.Event = field(default_factory=asyncio.Event)
    """While cleared, jobs stay at the embedding stage."""
    upload_gate: asyncio.Event = field(default_factory=asyncio.Event)
    """While cleared, jobs begin, but uploads get no response."""
    api_key: str | None = None
    streams: dict[str, PlayedAnswer] = field(default_factory=dict)
    """Answers that can be resumed, by the id in their ``meta``."""
    returns: list[str] = field(default_factory=list)
    """``Last-Event-ID`` of every returning reader."""
    refused_returns: list[Refuse] = field(default_factory=list)
    """Responses to the next returning readers; then they get the rest."""
    stops: list[str] = field(default_factory=list)
    """Ids of the stopped answers."""
    seen: asyncio.Condition = field(default_factory=asyncio.Condition)
    """Notified when a reader returns or stops an answer."""
    query_closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client disconnects before the end of an answer."""
    ratings: list[tuple[str, Json | None]] = field(default_factory=list)
    """Query and body of every stored rating; None: withdrawn."""
    unlogged: int = 0
    """Ratings that are rejected first, because their query is not logged yet."""
    extractive: bool = False
    statistics: Json = field(default_factory=dict)
    """Response of ``/v1/stats``, or {} for an unavailable database."""
    ranges: list[Json] = field(default_factory=list)
    """Parameters of the requested statistics."""
    conversations: StubConversations = field(default_factory=StubConversations)
    search: StubSearch = field(init=False)
    url: str = ""

    def __post_init__(self) -> None:
        self.ingestion_gate.set()
        self.upload_gate.set()
        self.search = StubSearch(self.documents)

    def add_collection(self, name: str) -> Json:
        """Create an empty collection."""
        made = {"id": f"c{len(self.collections) + 1}", "name": name, "document_count": 0, "chunk_count": 0}
        self.collections.append(made)
        return made

    def add_document(
        self,
        text: str,
        *,
        file: str,
        title: str | None = None,
        collection: str = "c1",
        sample: bool = False,
        headings: tuple[str | None, ...] = (None,),
    ) -> Json:
        """Store a document."""
        made = {
            "id": f"d{len(self.documents) + 1}-{uuid4().hex[:6]}",
            "collection_id": collection,
            "source": file,
            "title": title,
            "media_type": "text/markdown" if file.endswith(".md") else "text/plain",
            "metadata": {"sample": True} if sample else {},
            "chunk_count": 3,
            "text": text,
            "headings": list(headings),
        }
        self.documents.append(made)
        return made

    def application(self) -> web.Application:
        """Build the API routes used by the page, and the page itself."""
        app = web.Application(middlewares=[self._guard], client_max_size=64 * 1024 * 1024)
        app.add_routes(
            [
                *(web.get(path, _page) for path in PAGES),
                web.get("/v1/stats", self._show_statistics),
                web.get("/v1/providers", self._providers),
                web.get("/v1/collections", self._list_collections),
                web.post("/v1/collections", self._create_collection),
                web.patch("/v1/collections/{id}", self._rename_collection),
                web.delete("/v1/collections/{id}", self._delete_collection),
                web.get("/v1/collections/{id}/documents", self._list_documents),
                web.post("/v1/collections/{id}/documents", self._upload),
                web.get("/v1/documents/{id}/text", self._document_text),
                *self.search.routes(),
                *self.conversations.routes(),
                web.delete("/v1/documents/{id}", self._delete_document),
                web.get("/v1/jobs", self._list_jobs),
                web.get("/v1/jobs/{id}", self._job),
                web.post("/v1/collections/{id}/query", self._query),
                web.post("/v1/rag/query", self._query),
                web.get("/v1/queries/{id}/events", self._come_back),
                web.post("/v1/queries/{id}/stop", self._stop),
                web.post("/v1/queries/{id}/feedback", self._rate),
                web.delete("/v1/queries/{id}/feedback", self._rate),
            ]
        )
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        # Not Authorization: behind API Gateway and CloudFront only this header can be a key.
        sent = request.headers.get("X-Api-Key")
        if self.api_key and request.path not in PAGES and sent != self.api_key:
            return problem(401, "A valid API key is required.")
        return await handler(request)

    async def _providers(self, _: web.Request) -> web.Response:
        model = {"name": "fake", "default_model": "fake-1", "is_default": True, "extractive": self.extractive}
        return web.json_response({"llm": [model], "embedding": [], "generation_enabled": True})

    async def _show_statistics(self, request: web.Request) -> web.Response:
        self.ranges.append(dict(request.query))
        if not self.statistics:
            return problem(503, "The database is not available.")
        return web.json_response(self.statistics)

    async def _list_collections(self, _: web.Request) -> web.Response:
        for collection in self.collections:
            held = [d for d in self.documents if d["collection_id"] == collection["id"]]
            collection["document_count"] = len(held)
        return web.json_response({"collections": self.collections})

    async def _create_collection(self, request: web.Request) -> web.Response:
        name = (await request.json())["name"]
        if any(c["name"] == name for c in self.collections):
            return problem(409, f"A collection named {name!r} already exists.")
        return web.json_response(self.add_collection(name), status=201)

    async def _rename_collection(self, request: web.Request) -> web.Response:
        name = (await request.json())["name"]
        if any(c["name"] == name for c in self.collections):
            return problem(409, f"A collection named {name!r} already exists.")
        (renamed,) = [c for c in self.collections if c["id"] == request.match_info["id"]]
        renamed["name"] = name
        return web.json_response(renamed)

    async def _delete_collection(self, request: web.Request) -> web.Response:
        self.collections[:] = [c for c in self.collections if c["id"] != request.match_info["id"]]
        return web.json_response({"status": "running"}, status=202)

    async def _list_documents(self, request: web.Request) -> web.Response:
        held = [d for d in self.documents if d["collection_id"] == request.match_info["id"]]
        offset, limit = int(request.query.get("offset", 0)), int(request.query.get("limit", 50))
        page = [{k: v for k, v in d.items() if k != "text"} for d in held[offset : offset + limit]]
        body = {"documents": page, "total": len(held), "limit": limit, "offset": offset}
        return web.json_response({**body, "language_note": self.language_note})

    async def _upload(self, request: web.Request) -> web.Response:
        items = []
        async for part in await request.multipart():
            text = (await part.read(decode=True)).decode("utf-8", "replace")  # type: ignore[union-attr]  # never nested
            items.append({"source": part.filename, "status": "queued", "stage": None, "text": text})  # type: ignore[union-attr]  # as above
        job = {"id": uuid4().hex, "collection_id": request.match_info["id"], "status": "queued"}
        self.jobs[job["id"]] = job | {"stage": None, "error": None, "documents": items, "polls": 0}
        await self.upload_gate.wait()
        return web.json_response(_public(self.jobs[job["id"]]), status=202)

    async def _list_jobs(self, request: web.Request) -> web.Response:
        wanted = request.query.get("collection_id")
        jobs = [{**_public(j), "documents": []} for j in self.jobs.values() if j["collection_id"] == wanted]
        return web.json_response({"jobs": jobs})

    async def _job(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return problem(404, "There is no job with this id.")
        job["polls"] += 1
        if job["polls"] >= 3 and self.ingestion_gate.is_set():
            self._finish(job)
        else:
            stage = "extract" if job["polls"] == 1 else "embed"
            job |= {"status": "running", "stage": stage}
            for item in job["documents"]:
                item |= {"status": "running", "stage": stage}
        return web.json_response(_public(job))

    def _finish(self, job: Json) -> None:
        failed = 0
        for item in job["documents"]:
            if message := self.ingestion_errors.get(item["source"]):
                failed += 1
                item |= {"status": "failed", "error": {"code": "extraction_failed", "message": message}}
            elif item["status"] != "succeeded":
                item |= {"status": "succeeded", "stage": "done", "chunks_added": 3}
                self.add_document(item["text"], file=item["source"], collection=job["collection_id"])
        job["status"] = "failed" if failed == len(job["documents"]) else "partial" if failed else "succeeded"

    async def _document_text(self, request: web.Request) -> web.Response:
        for document in self.documents:
            if document["id"] == request.match_info["id"]:
                return web.json_response(document)
        return problem(404, "There is no document with this id.")

    async def _delete_document(self, request: web.Request) -> web.Response:
        self.documents[:] = [d for d in self.documents if d["id"] != request.match_info["id"]]
        return web.json_response({"status": "done"})

    async def _query(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(await request.json() | {"collection": request.match_info.get("id")})
        steps = self.scripts.pop(0) if self.scripts else answer("Nothing scripted.")
        if isinstance(steps[0], Refuse):
            return problem(steps[0].status, steps[0].detail)
        self.conversations.record(self.queries[-1], steps, request.match_info.get("id"))
        played = PlayedAnswer(list(steps))
        if (query_id := played.query_id) is not None:
            self.streams[query_id] = played
        return await self._send(played, 0, request)

    async def _come_back(self, request: web.Request) -> web.StreamResponse:
        last = request.headers["Last-Event-ID"]
        self.returns.append(last)
        await self._notify()
        if self.refused_returns:
            refused = self.refused_returns.pop(0)
            return problem(refused.status, refused.detail)
        return await self._send(self.streams[request.match_info["id"]], int(last), request)

    async def _stop(self, request: web.Request) -> web.Response:
        self.stops.append(request.match_info["id"])
        await self._notify()
        self.streams[request.match_info["id"]].stopped.set()
        return web.Response(status=202)

    async def _rate(self, request: web.Request) -> web.Response:
        if self.unlogged > 0:
            self.unlogged -= 1
            return problem(404, "Not logged yet.")
        body = await request.json() if request.method == "POST" else None
        self.ratings.append((request.match_info["id"], body))
        return web.json_response(body) if body else web.Response(status=204)

    async def _notify(self) -> None:
        async with self.seen:
            self.seen.notify_all()

    async def _send(self, played: PlayedAnswer, after: int, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        try:
            await played.play(after, response, request)
            await response.write_eof()
        except asyncio.CancelledError:
            self.query_closed.set()
            raise
        except ConnectionError:
            self.query_closed.set()
        return response


def problem(status: int, detail: str) -> web.Response:
    """Return an RFC 9457 problem document."""
    body = {"title": "Refused", "status": status, "detail": detail, "code": "refused", "request_id": "req-1"}
    return web.json_response(body, status=status, content_type="application/problem+json")


def _public(job: Json) -> Json:
    items = [{k: v for k, v in item.items() if k != "text"} for item in job["documents"]]
    return {k: v for k, v in job.items() if k != "polls"} | {"documents": items}


async def _page(request: web.Request) -> web.Response:
    sent = page_response(PAGES[request.path])
    headers = {"Content-Security-Policy": sent.headers["Content-Security-Policy"]}
    return web.Response(text=bytes(sent.body).decode(), content_type="text/html", headers=headers)
