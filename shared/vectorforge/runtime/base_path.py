"""Where an API is mounted: the stage in its URL, or the path of a custom domain.

As ASGI has it (and as web servers set it), ``path`` is what the client asked for and ``root_path`` its
beginning up to the app; frameworks take the second off the first when they route, and put it before the URLs
they make. https://asgi.readthedocs.io/en/latest/specs/www.html#http-connection-scope
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from vectorforge.runtime.asgi import AsgiApp, Receive, Scope, Send

_NO_STAGE = "$default"


def normalised(base_path: str) -> str:
    """``"shop"``, ``"/shop/"`` and ``"/shop"`` are ``"/shop"``; ``"/"`` and ``""`` are ``""``."""
    inner = base_path.strip("/")
    return f"/{inner}" if inner else ""


def mount(event: Mapping[str, Any], base_path: str) -> tuple[str, str]:
    """``root_path`` and ``path`` of an HTTP event, decoded.

    Args:
        event: Of payload format 1.0 or 2.0. In 2.0 a path begins with the stage, unless that is
            ``$default``; in 1.0 only ``requestContext.path`` does, and only at the API's own host name.
        base_path: Path under which a custom domain maps the API; nothing in an event tells it.

    Raises:
        KeyError: It has no path.
    """
    context = event["requestContext"]
    stage = normalised(str(context.get("stage") or ""))
    is_2 = event.get("version") == "2.0"
    path = unquote((context["http"]["path"] if is_2 else event["path"]) or "/")
    if stage in ("", f"/{_NO_STAGE}"):
        stage = ""
    elif not is_2 and unquote(context.get("path") or "").rstrip("/") == (stage + path).rstrip("/"):
        path = stage + path
    else:
        stage = stage if is_2 else ""
    for root in (stage, normalised(base_path)):
        if root and (path == root or path.startswith(f"{root}/")):
            return root, path if path != root else f"{root}/"
    return "", path


def mounted(app: AsgiApp, base_path: str) -> AsgiApp:
    """The app behind Mangum, which takes base paths off but leaves ``root_path`` empty, and knows no stages.

    Args:
        app: The app.
        base_path: As for :func:`mount`; Mangum itself gets none.
    """

    async def mounted_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root_path, path = mount(scope["aws.event"], base_path)
            scope = {**scope, "root_path": root_path, "path": path}
        await app(scope, receive, send)

    return mounted_app
