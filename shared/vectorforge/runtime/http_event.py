"""Events of API Gateway and function URLs as ASGI scopes, parsed by Mangum; mount points of APIs.

In ASGI, ``path`` is the requested path and ``root_path`` its prefix up to the app (the stage in the URL, or
the path of a custom domain); frameworks remove it for routing and add it to generated URLs.
https://asgi.readthedocs.io/en/latest/specs/www.html#http-connection-scope
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from mangum.handlers import APIGateway, HTTPGateway
from mangum.types import LambdaConfig

from vectorforge.runtime.errors import UnsupportedEventError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


def normalised(base_path: str) -> str:
    """``"shop"``, ``"/shop/"`` and ``"/shop"`` are ``"/shop"``; ``"/"`` and ``""`` are ``""``."""
    inner = base_path.strip("/")
    return f"/{inner}" if inner else ""


def mount(event: Mapping[str, Any], base_path: str) -> tuple[str, str]:
    """Return ``root_path`` and ``path`` of an HTTP event, decoded.

    Args:
        event: Event of payload format 1.0 or 2.0. In 2.0 a path begins with the stage, unless that is
            ``$default``; in 1.0 only ``requestContext.path`` does, and only at the API's own host name.
        base_path: Path under which a custom domain maps the API; events do not contain it.

    Raises:
        KeyError: The event has no path.
    """
    context = event["requestContext"]
    stage = normalised(str(context.get("stage") or ""))
    is_2 = event.get("version") == "2.0"
    path = unquote(_encoded_path(event))
    if stage in ("", "/$default"):
        stage = ""
    elif not is_2 and unquote(context.get("path") or "").rstrip("/") == (stage + path).rstrip("/"):
        path = stage + path
    else:
        stage = stage if is_2 else ""
    for root in (stage, normalised(base_path)):
        if root and (path == root or path.startswith(f"{root}/")):
            return root, path if path != root else f"{root}/"
    return "", path


def _encoded_path(event: Mapping[str, Any]) -> str:
    is_2 = event.get("version") == "2.0"
    path: str = event["requestContext"]["http"]["path"] if is_2 else event["path"]
    return path or "/"


def mounted(app: AsgiApp, base_path: str) -> AsgiApp:
    """Return the app behind Mangum, which strips base paths, leaves ``root_path`` empty and ignores stages.

    Args:
        app: The app.
        base_path: As for :func:`mount`; not passed to Mangum.
    """

    async def mounted_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root_path, path = mount(scope["aws.event"], base_path)
            raw_path = _encoded_path(scope["aws.event"]).encode("utf-8", "replace")
            scope = {**scope, "root_path": root_path, "path": path, "raw_path": raw_path}
        await app(scope, receive, send)

    return mounted_app


# "2.3": an app learns of a disconnect from `http.disconnect`, and `send` stays silent then. From
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
    body: bytes | None
    """None: declared as Base64, but invalid."""
    multi_value_headers: bool
    """True if the caller (REST API, payload 1.0) expects repeated response headers separately."""


def read_event(event: Any, context: Any, base_path: str) -> HttpRequest:
    """The HTTP request in an event of payload format 1.0 or 2.0.

    Args:
        event: The event, as decoded from JSON.
        context: The LambdaContext.
        base_path: Path under which a custom domain mounts the app. It, or the stage in the URL, becomes
            the ``root_path``.

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
    config = LambdaConfig(api_gateway_base_path="/", text_mime_types=[], exclude_headers=[])
    adapter = HTTPGateway if HTTPGateway.infer(event, context, config) else APIGateway
    if not adapter.infer(event, context, config):
        raise UnsupportedEventError("The event has a requestContext but neither version nor resource.")
    try:
        # Mangum fails at a Host that it cannot split; headers and server are read here.
        scope = adapter({**event, "headers": {}, "multiValueHeaders": {}}, context, config).scope
        headers = _headers(event)
        scope["root_path"], scope["path"] = mount(event, base_path)
        scope["raw_path"] = _encoded_path(event).encode("utf-8", "replace")
        body = _body(event)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise UnsupportedEventError(
            "The event has a requestContext but not the fields of payload format 1.0 or 2.0."
        ) from exc
    scope["headers"] = [
        [name.encode("utf-8", "replace"), value.encode("utf-8", "replace")] for name, value in headers.items()
    ]
    scope["scheme"] = headers.get("x-forwarded-proto", "https").lower()  # LocalStack's is "HTTP"
    scope["server"] = _server(headers)
    scope["aws.event"] = event
    scope["asgi"] = {"version": "3.0", "spec_version": SPEC_VERSION}
    return HttpRequest(scope, body, multi_value_headers=event.get("version") != "2.0")


def _headers(event: dict[str, Any]) -> dict[str, str]:
    """Values by lower-case name; repeated ones joined by commas, cookies by semicolons (RFC 6265, 5.4)."""
    repeated = {} if event.get("version") == "2.0" else event.get("multiValueHeaders") or {}
    listed: dict[str, list[str]] = {}  # an event may have a name in several cases
    for name, values in repeated.items():
        listed.setdefault(name.lower(), []).extend(values or ())
    known = frozenset(listed)
    for name, value in (event.get("headers") or {}).items():
        if name.lower() not in known:
            listed.setdefault(name.lower(), []).append(str(value))
    if event.get("version") == "2.0" and event.get("cookies"):
        listed["cookie"] = event["cookies"]
    return {name: ("; " if name == "cookie" else ", ").join(values) for name, values in listed.items()}


def _server(headers: dict[str, str]) -> tuple[str, int] | None:
    """Return the requested host and port, or None, which ASGI allows, for another form."""
    try:
        host = urlsplit(f"//{headers['host']}")
        port = host.port if host.port is not None else int(headers.get("x-forwarded-port", 80))
    except (KeyError, ValueError):
        return None
    return (host.hostname, port) if host.hostname else None


def _body(event: dict[str, Any]) -> bytes | None:
    body = event.get("body") or ""
    if not event.get("isBase64Encoded"):
        return str(body).encode()
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error:
        return None


async def bad_request(_scope: Scope, _receive: Receive, send: Send) -> None:
    """An ASGI app in place of the real one for a body that cannot be read."""
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": b"The body is not the Base64 that it is said to be."})
