"""Stored conversations of the scripted server."""

from dataclasses import dataclass, field
from uuid import uuid4

from aiohttp import web

from tests.browser.answer_script import Json, Send, Step


@dataclass
class StubConversations:
    """Conversations, in the order of their last use."""

    stored: list[Json] = field(default_factory=list)
    is_full: bool = False
    """True: the limit of conversations is reached."""
    shown_messages: int = 100

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of conversations."""
        path = "/v1/conversations"
        return [
            web.get(path, self._list),
            web.post(path, self._create),
            web.get(path + "/{id}", self._show),
            web.patch(path + "/{id}", self._rename),
            web.delete(path + "/{id}", self._delete),
        ]

    def add(self, title: str = "", messages: list[Json] | None = None) -> Json:
        """Store a conversation."""
        made = {
            "id": str(uuid4()),
            "title": title,
            "created_at": "2026-11-27T12:00:00Z",
            "updated_at": "2026-11-27T12:00:00Z",
            "messages": messages or [],
        }
        self.stored.insert(0, made)
        return made

    def record(self, body: Json, steps: list[Step], collection: str | None) -> None:
        """Store an exchange, if the answer is scripted to its end."""
        events = {step.event: step.data for step in steps if isinstance(step, Send)}
        found = self.find(body.get("conversation_id"))
        if found is None or "done" not in events:
            return
        meta = events["meta"]
        found["messages"] += exchange(
            body["query"],
            "".join(s.data["text"] for s in steps if isinstance(s, Send) and s.event == "token"),
            events["sources"]["sources"],
            collection=collection,
            query_id=meta["request_id"],
            provider="extractive" if meta["extractive"] else "fake",
        )
        found["title"] = found["title"] or body["query"][:200]

    def find(self, conversation_id: str | None) -> Json | None:
        """Return a conversation, or None."""
        return next((one for one in self.stored if one["id"] == conversation_id), None)

    async def _list(self, request: web.Request) -> web.Response:
        assert request.query["own"] == "true"
        offset, limit = int(request.query.get("offset", 0)), int(request.query["limit"])
        page = [_without_messages(one) for one in self.stored[offset : offset + limit]]
        return web.json_response({"conversations": page, "limit": limit, "offset": offset})

    async def _create(self, _: web.Request) -> web.Response:
        if self.is_full:
            return _problem(409, "The limit of 3 conversations is reached; delete one first.")
        return web.json_response(_without_messages(self.add()), status=201)

    async def _show(self, request: web.Request) -> web.Response:
        found = self.find(request.match_info["id"])
        if found is None:
            return _problem(404, "Conversation not found")
        messages = found["messages"][-self.shown_messages :]
        return web.json_response(_without_messages(found) | {"messages": messages})

    async def _rename(self, request: web.Request) -> web.Response:
        found = self.find(request.match_info["id"])
        if found is None:
            return _problem(404, "Conversation not found")
        found["title"] = (await request.json())["title"]
        return web.json_response(_without_messages(found))

    async def _delete(self, request: web.Request) -> web.Response:
        found = self.find(request.match_info["id"])
        if found is None:
            return _problem(404, "Conversation not found")
        self.stored.remove(found)
        return web.Response(status=204)


def exchange(
    question: str,
    answer: str,
    sources: list[Json] | None,
    *,
    collection: str | None = "c1",
    query_id: str | None = None,
    provider: str = "fake",
) -> list[Json]:
    """Return a question and its answer as the API returns them."""
    shared = {
        "query_id": query_id or str(uuid4()),
        "created_at": "2026-11-27T12:00:00Z",
        "collection_id": collection,
        "model": "fake-1",
    }
    return [
        {"role": "user", "content": question, "sources": None, "provider": None, **shared},
        {"role": "assistant", "content": answer, "sources": sources, "provider": provider, **shared},
    ]


def _without_messages(conversation: Json) -> Json:
    count = len(conversation["messages"])
    return {k: v for k, v in conversation.items() if k != "messages"} | {"message_count": count}


def _problem(status: int, detail: str) -> web.Response:
    body = {"title": "Refused", "status": status, "detail": detail, "code": "refused", "request_id": "req-1"}
    return web.json_response(body, status=status, content_type="application/problem+json")
