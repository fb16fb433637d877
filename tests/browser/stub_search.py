"""Chunks and searches of the scripted server."""

from dataclasses import dataclass, field

from aiohttp import web

from tests.browser.answer_script import Json


@dataclass
class StubSearch:
    """Finds all documents of a collection, except for some words."""

    documents: list[Json]
    searches: list[Json] = field(default_factory=list)
    """Bodies of the received searches."""
    not_found: set[str] = field(default_factory=set)
    """Words whose searches find nothing."""

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of chunks and of the search."""
        return [
            web.get("/v1/documents/{id}/chunks", self._chunks),
            web.get("/v1/chunks/{id}", self._chunk),
            web.post("/v1/search", self._search),
        ]

    async def _chunks(self, request: web.Request) -> web.Response:
        (document,) = [d for d in self.documents if d["id"] == request.match_info["id"]]
        return web.json_response({"chunks": [{"heading": heading} for heading in document["headings"]]})

    async def _chunk(self, request: web.Request) -> web.Response:
        """Return the first ten characters of the first document."""
        document = self.documents[0]
        chunk = {"id": request.match_info["id"], "text": document["text"][:10], "heading": None}
        place = {"start_offset": 0, "end_offset": 10, "locations": [], "retired": False}
        about = {name: document[name] for name in ("id", "title", "source")}
        return web.json_response({**chunk, **place, "document": about})

    async def _search(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.searches.append(body)
        held = [d for d in self.documents if d["collection_id"] == body["collection"]]
        hits = [] if any(word in body["query"] for word in self.not_found) else held
        results = [
            {"document_id": d["id"], "source": d["source"], "heading": heading}
            for d in hits
            for heading in d["headings"]
        ]
        return web.json_response({"results": results})
