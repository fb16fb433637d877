"""Events of API Gateway and Function URLs as ASGI scopes; the reading is Mangum's."""

from dataclasses import dataclass
from typing import Any

from mangum.handlers import APIGateway, HTTPGateway
from mangum.types import LambdaConfig

from vectorforge.runtime.asgi import Scope
from vectorforge.runtime.errors import UnsupportedEventError

# "2.3": an app learns from `http.disconnect` that nobody reads any more, and `send` stays silent then. From
# "2.4" on `send` has to raise OSError, and Starlette stops listening for the disconnect: an app that waits
# for its next token would learn of the loss only when it comes. Below 2.4, on the other hand, an OSError from
# `send` would pass the app's generator by, unfinalised.
# https://asgi.readthedocs.io/en/latest/specs/www.html#spec-versions
SPEC_VERSION = "2.3"


@dataclass(frozen=True)
class HttpRequest:
    """One HTTP request out of an event."""

    scope: Scope
    """The ASGI connection scope, with ``aws.event`` and ``aws.context``."""
    body: bytes
    multi_value_headers: bool
    """Whether the caller (REST API, payload 1.0) takes repeated response headers apart from the others."""


def read_event(event: Any, context: Any, base_path: str) -> HttpRequest:
    """The HTTP request in an event of payload format 1.0 or 2.0.

    Args:
        event: The event, as decoded from JSON.
        context: The LambdaContext.
        base_path: Path under which API Gateway mounts the app; taken off the request's path.

    Raises:
        UnsupportedEventError: It is no HTTP request, or one that lacks a field.
    """
    if not isinstance(event, dict) or not isinstance(event.get("requestContext"), dict):
        raise UnsupportedEventError(
            "The event is no HTTP request: it has no requestContext. A StreamingHandler answers events of a "
            "Function URL, an API Gateway REST API or an HTTP API."
        )
    if "elb" in event["requestContext"]:
        raise UnsupportedEventError(
            "The event is an Application Load Balancer's, which cannot stream: serve the app through Mangum."
        )
    config = LambdaConfig(api_gateway_base_path=base_path, text_mime_types=[], exclude_headers=[])
    adapter = HTTPGateway if HTTPGateway.infer(event, context, config) else APIGateway
    if not adapter.infer(event, context, config):
        raise UnsupportedEventError("The event has a requestContext but neither version nor resource.")
    try:
        request = adapter(event, context, config)
        scope, body = request.scope, request.body
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise UnsupportedEventError(
            "The event has a requestContext but not the fields of payload format 1.0 or 2.0."
        ) from exc
    scope["asgi"] = {"version": "3.0", "spec_version": SPEC_VERSION}
    return HttpRequest(scope, body, multi_value_headers=event.get("version") != "2.0")
