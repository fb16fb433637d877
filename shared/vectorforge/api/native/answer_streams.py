"""``/v1/queries/{id}/events`` and ``/stop``: go on reading a resumable answer, from anywhere, or end it."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Request, Response

from vectorforge.api.dependencies import ApplicationDep, Tenant
from vectorforge.api.middleware.limits import LAMBDA_MARGIN_S, invocation_time_s
from vectorforge.api.responses import event_stream_content, problems
from vectorforge.api.streaming.replay import ReplayResponse, has_nothing_after
from vectorforge.deadline import Deadline
from vectorforge.errors import InvalidInputError, NotFoundError

router = APIRouter(prefix="/v1/queries/{query_id}", tags=["query"])

MAX_EVENT_ID = 2**31 - 2

_EVENTS_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The events after that one, then those to come, up to `done` or `error`.",
        "content": event_stream_content(),
    },
    204: {"description": "That was the last event: an `EventSource` stops coming back."},
    **problems(404),
}
_STOP_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"description": 'The answer ends soon: its last event is `done`, `finish_reason: "stopped"`.'},
    204: {"description": "It had ended already."},
    **problems(404),
}
_LAST_EVENT_ID = "Id of the last event that the client has; 0: none."


@router.get("/events", response_class=Response, responses=_EVENTS_RESPONSES)
async def follow_answer(
    request: Request,
    query_id: UUID,
    application: ApplicationDep,
    tenant: Tenant,
    last_event_id: Annotated[str | None, Query(description=_LAST_EVENT_ID)] = None,
    header: Annotated[
        str | None,
        Header(alias="Last-Event-ID", description=f"{_LAST_EVENT_ID} It goes before the parameter."),
    ] = None,
) -> Response:
    """The events of an answer that was asked for with `resumable: true`, from any one on."""
    # An EventSource that comes back sends the header, and the parameter of its first request beside it.
    after = _event_id(header or last_event_id or "0")
    found = await tenant.answer_streams.read(query_id, after)
    if found is None:
        raise _no_such_stream(query_id)
    if has_nothing_after(found, after):
        return Response(status_code=204)
    time_s = invocation_time_s(request.scope)
    return ReplayResponse(
        tenant.answer_streams,
        query_id,
        found,
        after=after,
        request_id=request.scope["state"]["request_id"],
        deadline=Deadline.never() if time_s is None else Deadline.after(time_s - LAMBDA_MARGIN_S),
        note_reader_s=application.config.streams.resume_grace_s / 3,
        ping_interval_s=request.app.state.ping_interval_s,
    )


@router.post("/stop", response_class=Response, status_code=202, responses=_STOP_RESPONSES)
async def stop_answer(query_id: UUID, tenant: Tenant) -> Response:
    """End an answer that was asked for with `resumable: true`, wherever it is written."""
    state = await tenant.answer_streams.request_stop(query_id)
    if state is None:
        raise _no_such_stream(query_id)
    return Response(status_code=204 if state in ("ended", "lost") else 202)


def _event_id(given: str) -> int:
    if not (given.isascii() and given.isdecimal()) or len(given) > 10 or int(given) > MAX_EVENT_ID:
        raise InvalidInputError(
            f"Last-Event-ID must be a whole number from 0 to {MAX_EVENT_ID}.", field="last_event_id"
        )
    return int(given)


def _no_such_stream(query_id: UUID) -> NotFoundError:
    return NotFoundError(f"No resumable answer {query_id} is kept (any more).")
