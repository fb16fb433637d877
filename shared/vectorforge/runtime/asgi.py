"""The words of ASGI (https://asgi.readthedocs.io), as types."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Literal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
LifespanMode = Literal["auto", "on", "off"]
