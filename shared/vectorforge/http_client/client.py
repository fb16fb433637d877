"""``VectorForge`` and ``AsyncVectorForge``: the same methods, blocking and as coroutines."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import httpx2

from vectorforge.http_client import calls
from vectorforge.http_client.calls import Call, Steps
from vectorforge.http_client.models import Answer, AnswerEvent, Model
from vectorforge.http_client.transport import AsyncSender, SyncSender

P = ParamSpec("P")
ResultT = TypeVar("ResultT", bound=Model)
SenderT = TypeVar("SenderT", bound=SyncSender | AsyncSender)

DEFAULT_URL = "http://localhost:8000"
_CONNECT_TIMEOUT_S = 10.0


class Resource(Generic[SenderT]):
    """A group of methods of a client."""

    def __init__(self, sender: SenderT) -> None:
        self.sender = sender


class _Method(Generic[P, ResultT]):
    """Method that sends what a function of ``calls`` describes; returns the result, or a coroutine."""

    def __init__(self, describe: Callable[P, Call[ResultT] | Steps[ResultT]]) -> None:
        self._describe = describe

    @overload
    def __get__(self, instance: Resource[SyncSender], owner: object) -> Callable[P, ResultT]: ...
    @overload
    def __get__(
        self, instance: Resource[AsyncSender], owner: object
    ) -> Callable[P, Coroutine[Any, Any, ResultT]]: ...
    def __get__(self, instance: Resource[Any], owner: object) -> Callable[P, Any]:
        @wraps(self._describe)
        def method(*args: P.args, **options: P.kwargs) -> Any:
            return instance.sender(self._describe(*args, **options))

        return method


class _StreamMethod(Generic[P]):
    """Method that returns an iterator of the events of an answer."""

    def __init__(self, describe: Callable[P, Call[Answer]]) -> None:
        self._describe = describe

    @overload
    def __get__(
        self, instance: Resource[SyncSender], owner: object
    ) -> Callable[P, Generator[AnswerEvent, None, None]]: ...
    @overload
    def __get__(
        self, instance: Resource[AsyncSender], owner: object
    ) -> Callable[P, AsyncGenerator[AnswerEvent, None]]: ...
    def __get__(self, instance: Resource[Any], owner: object) -> Callable[P, Any]:
        @wraps(self._describe)
        def method(*args: P.args, **options: P.kwargs) -> Any:
            return instance.sender.stream(self._describe(*args, **options))

        return method


class Collections(Resource[SenderT]):
    """Collections, by name or id."""

    create = _Method(calls.create_collection)
    list = _Method(calls.list_collections)
    get = _Method(calls.get_collection)
    update = _Method(calls.update_collection)
    delete = _Method(calls.delete_collection)


class Documents(Resource[SenderT]):
    """Documents of collections."""

    add = _Method(calls.add_documents)
    list = _Method(calls.list_documents)
    get = _Method(calls.get_document)
    delete = _Method(calls.delete_document)


class Jobs(Resource[SenderT]):
    """Ingestions in the background."""

    get = _Method(calls.get_job)
    wait = _Method(calls.wait_for_job)


class Ratings(Resource[SenderT]):
    """Feedback on answers."""

    create = _Method(calls.create_feedback)


class _Client(Resource[SenderT]):
    query = _Method(calls.query)
    stream = _StreamMethod(calls.stream)
    search = _Method(calls.search)

    def __init__(self, sender: SenderT) -> None:
        super().__init__(sender)
        self.collections = Collections(sender)
        self.documents = Documents(sender)
        self.jobs = Jobs(sender)
        self.feedback = Ratings(sender)


class VectorForge(_Client[SyncSender]):
    """Client of a server; thread-safe. Methods block until there is a result.

    Args:
        base_url: URL of the server, with a stage if it has one; also with ``/v1``, as other clients need it.
        api_key: API key or access token; None for a server without keys.
        timeout: Seconds without a byte from the server, after which a request fails.
        retries: Repetitions of a request after 429, 503 or a failed connection, with exponential backoff or
            as ``Retry-After`` says. Only requests that are safe to repeat are, and no stream after its
            first event.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 150.0,
        retries: int = 3,
    ) -> None:
        client = httpx2.Client(base_url=_root(base_url), headers=_headers(api_key), timeout=_timeout(timeout))
        super().__init__(SyncSender(client, retries))

    def close(self) -> None:
        """Close all connections."""
        self.sender.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncVectorForge(_Client[AsyncSender]):
    """``VectorForge`` for coroutines, on one event loop: its methods are awaited."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = 150.0,
        retries: int = 3,
    ) -> None:
        client = httpx2.AsyncClient(
            base_url=_root(base_url), headers=_headers(api_key), timeout=_timeout(timeout)
        )
        super().__init__(AsyncSender(client, retries))

    async def close(self) -> None:
        """Close all connections."""
        await self.sender.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _root(base_url: str) -> str:
    return base_url.rstrip("/").removesuffix("/v1")


def _headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


def _timeout(timeout_s: float) -> httpx2.Timeout:
    return httpx2.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S))
