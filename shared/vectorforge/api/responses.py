"""The OpenAPI descriptions of responses that many routes share."""

from typing import Any

from vectorforge.api.native.events import EVENT_DATA
from vectorforge.api.schemas import Problem

_DESCRIPTIONS = {
    400: "The body is not what it is declared to be: not JSON, not UTF-8, or not a form.",
    401: "No credential, or not a valid one.",
    403: "The credential lacks the scope that this needs.",
    404: "There is nothing with this id.",
    409: "The request contradicts what is stored.",
    413: "The body, or one of its files, is too large.",
    415: "The body is of another type than the route takes.",
    422: "A value is not usable; `errors` names fields and limits.",
    429: "A limit of the tenant is reached, or a provider is limiting requests; see Retry-After.",
    500: "An unexpected failure.",
    502: "An embedding or language model failed.",
    503: "The database is not available; see Retry-After.",
    504: "The time ran out.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problem documents of these statuses; 401, 403, 422, 500, 503 are always among them, 400 with 415."""
    every = sorted({401, 403, 422, 500, 503, *statuses, *((400,) if 415 in statuses else ())})
    return {status: {"model": Problem, "description": _DESCRIPTIONS[status]} for status in every}


ANSWER_PROBLEMS = problems(404, 409, 413, 415, 429, 502, 504)
"""Of routes that embed and generate."""


def event_stream_content() -> dict[str, Any]:
    """The media type of a streamed answer: one schema for each event, by its name.

    ``itemSchema`` is OpenAPI 3.2's way to describe sequential media types; FastAPI writes it likewise.
    """
    events = [_event_schema(name, data.__name__) for name, data in EVENT_DATA.items()]
    return {"text/event-stream": {"itemSchema": {"oneOf": events}}}


def nameless_events_content(description: str) -> dict[str, Any]:
    """The media type of a stream whose events have data and no name; ``description`` says what is in it."""
    data = {"type": "string", "description": description}
    schema = {"type": "object", "required": ["data"], "properties": {"data": data}}
    return {"text/event-stream": {"itemSchema": schema}}


def _event_schema(event: str, data: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["event", "data", "id"],
        "properties": {
            "event": {"const": event},
            "id": {"type": "string", "description": "1, 2, 3 and so on."},
            "data": {
                "type": "string",
                "contentMediaType": "application/json",
                "contentSchema": {"$ref": f"#/components/schemas/{data}"},
            },
        },
    }
