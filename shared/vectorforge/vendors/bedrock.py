"""Amazon Bedrock through boto3: blocking calls in threads, streams that can be closed, errors as statuses."""

import asyncio
import concurrent.futures
import contextvars
import json
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

from vectorforge.errors import ConfigurationError
from vectorforge.vendors.response import VendorConnectionError, VendorStatusError, VendorTimeoutError

T = TypeVar("T")

Service: TypeAlias = Literal["bedrock-runtime", "bedrock"]
"""Inference and model listing: two hosts with two SDK clients."""

_CONNECT_TIMEOUT_S = 5.0
_CONNECTIONS = 50


@dataclass(eq=False, slots=True)
class BedrockClient:
    """The SDK's clients for one region, built on first use and without retries.

    Credentials come from boto3's chain: a role on AWS, a profile or variables elsewhere.
    ``AWS_ENDPOINT_URL_BEDROCK_RUNTIME`` is supported.

    Args:
        endpoint_url: Returns the address of the API when a client is built; None: AWS's.
        region: E.g. "eu-central-1"; default: from boto3's chain.
        read_timeout_s: Silence after which an abandoned call ends.
        session: A boto3 session with credentials of its own.
    """

    _: KW_ONLY
    endpoint_url: Callable[[], str | None] = lambda: None
    region: str | None = None
    read_timeout_s: float = 60.0
    session: Any = None
    _clients: dict[Service, Any] = field(default_factory=dict, init=False)
    # threads may share clients, but not build them concurrently
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    async def call(self, operation: str, *, service: Service = "bedrock-runtime", **parameters: Any) -> Any:
        """Call an operation, such as "converse"; the response of a canceled call is closed.

        Raises:
            ConfigurationError: There is no region.
            VendorStatusError: AWS rejected the request, or there are no credentials.
            VendorTimeoutError: There was no response in time.
            VendorConnectionError: There was no connection.
            ConnectionError: The response broke off.
        """

        def work() -> Any:
            return getattr(self._get(service), operation)(**parameters)

        return await _in_thread(work, discard=_close_stream)

    async def invoke(self, model: str, body: Mapping[str, Any]) -> Any:
        """Send a body in the model's own format and parse the response. Errors as ``call``.

        Raises:
            ValueError: The response is not JSON.
        """

        def work() -> Any:
            answer = self._get("bedrock-runtime").invoke_model(
                modelId=model,
                body=json.dumps(body),
                contentType="application/json",
                accept="application/json",
            )
            try:
                return json.loads(answer["body"].read())
            except RecursionError:
                raise ValueError("nested too deeply") from None

        return await _in_thread(work)

    async def list_pages(self, operation: str, **parameters: Any) -> list[Any]:
        """Return every page of a listing operation of the service "bedrock"."""
        return await _in_thread(
            lambda: list(self._get("bedrock").get_paginator(operation).paginate(**parameters))
        )

    async def preload(self) -> None:
        """Import boto3 and build the inference client; connects to nothing."""
        await _in_thread(lambda: self._get("bedrock-runtime"))

    def close(self) -> None:
        """Close connections; the next call builds new clients."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _get(self, service: Service) -> Any:
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._build(service)
            return self._clients[service]

    def _build(self, service: Service) -> Any:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        config = Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=self.read_timeout_s,
            retries={"mode": "standard", "total_max_attempts": 1},
            max_pool_connections=_CONNECTIONS,
            tcp_keepalive=True,
        )
        try:
            if self.session is None:  # not boto3's default session, which other code shares
                self.session = boto3.session.Session(region_name=self.region)
            return self.session.client(
                service, region_name=self.region, endpoint_url=self.endpoint_url(), config=config
            )
        except (BotoCoreError, ValueError) as exc:  # ValueError: an address that is no URL
            raise ConfigurationError(
                f"Cannot create a client for Amazon Bedrock ({type(exc).__name__}); check "
                "VECTORFORGE_BEDROCK_REGION and VECTORFORGE_BEDROCK_BASE_URL.",
                setting="VECTORFORGE_BEDROCK_REGION",
            ) from exc


async def stream_events(stream: Any) -> AsyncGenerator[Any, None]:
    """Yield the events of an SDK's event stream as they arrive; closing the generator disconnects.

    Args:
        stream: ``botocore.eventstream.EventStream``, read by a thread; its errors are raised here.
    """
    loop = asyncio.get_running_loop()
    items: asyncio.Queue[tuple[Any, Exception | None]] = asyncio.Queue()

    def put(event: Any, error: Exception | None = None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(items.put_nowait, (event, error))

    def read() -> None:
        error: Exception | None = None
        try:
            for event in stream:
                put(event)
        except Exception as exc:  # noqa: BLE001 - raised by the consumer
            error = exc
        with suppress(Exception):
            stream.close()
        put(None, error)

    _start_thread(read)
    try:
        while True:
            event, error = await items.get()
            if error is not None:
                _raise(error)
            if event is None:
                return
            yield event
    finally:
        _interrupt(stream)


def _interrupt(stream: Any) -> None:
    """End a read in another thread, which then closes the connection; closing it here would block."""
    with suppress(ValueError, RuntimeError):  # it was read to its end
        stream._raw_stream.shutdown()  # noqa: SLF001 - urllib3's response, which the SDK offers no way to


def _close_stream(answer: Any) -> None:
    if "stream" in answer:
        answer["stream"].close()


async def _in_thread(work: Callable[[], T], *, discard: Callable[[T], None] = lambda _: None) -> T:
    """Await blocking work in a new thread.

    The threads of asyncio's pool, and the end of the process, would wait for abandoned calls.

    Args:
        work: Synchronous work.
        discard: Receives the result if the wait was canceled.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as exc:  # noqa: BLE001 - raised by the consumer
            with suppress(concurrent.futures.InvalidStateError):  # canceled
                future.set_exception(exc)
            return
        try:
            future.set_result(result)
        except concurrent.futures.InvalidStateError:
            discard(result)

    _start_thread(run)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if not future.cancel() and future.exception() is None:  # it ended at the same moment
            discard(future.result())
        raise
    except Exception as exc:  # noqa: BLE001 - translated and raised
        _raise(exc)


def _start_thread(work: Callable[[], None]) -> None:
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="bedrock", daemon=True).start()


_AUTHENTICATION = 401
_STATUSES = {
    "accessdeniedexception": _AUTHENTICATION,
    "expiredtoken": _AUTHENTICATION,
    "expiredtokenexception": _AUTHENTICATION,
    "incompletesignature": _AUTHENTICATION,
    "incompletesignatureexception": _AUTHENTICATION,
    "invalidclienttokenid": _AUTHENTICATION,
    "invalidsignatureexception": _AUTHENTICATION,
    "missingauthenticationtoken": _AUTHENTICATION,
    "missingauthenticationtokenexception": _AUTHENTICATION,
    "signaturedoesnotmatch": _AUTHENTICATION,
    "unrecognizedclientexception": _AUTHENTICATION,
    "validationexception": 400,
    "modeltimeoutexception": 408,
    "modelnotreadyexception": 429,
    "throttlingexception": 429,
    "internalserverexception": 500,
    "modelstreamerrorexception": 500,  # documented as "Retry your request"
    "serviceunavailableexception": 503,
}
"""Statuses by error code in lower case. Errors of a stream have no status, and AWS reports some rejected
credentials as 400. Sources: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
and https://docs.aws.amazon.com/bedrock/latest/APIReference/CommonErrors.html."""


def _raise(exc: Exception) -> NoReturn:
    error = _translated(exc)
    raise error from (exc.__cause__ if error is exc else exc)


def _translated(exc: Exception) -> Exception:
    """Return the error of ``vectorforge.vendors.response`` for one of the SDK; others unchanged.

    The status is 401 for missing or invalid credentials, and 400 for a request that the SDK rejected.
    """
    from botocore import exceptions
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    if isinstance(exc, exceptions.ClientError):  # those of a stream, too
        metadata, error = exc.response.get("ResponseMetadata", {}), exc.response.get("Error", {})
        status = _STATUSES.get(str(error.get("Code")).lower(), metadata.get("HTTPStatusCode", 500))
        body = json.dumps({"code": error.get("Code"), "message": error.get("Message")})
        return VendorStatusError(status, metadata.get("HTTPHeaders", {}), body.encode())
    without_credentials = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.NoAuthTokenError,
        exceptions.SSOError,
        exceptions.TokenRetrievalError,
        exceptions.ProfileNotFound,
    )
    if isinstance(exc, without_credentials):
        return VendorStatusError(_AUTHENTICATION, {}, b"")
    if isinstance(exc, exceptions.ParamValidationError):
        return VendorStatusError(400, {}, b"")
    if isinstance(exc, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError | ReadTimeoutError):
        return VendorTimeoutError(str(exc))
    if isinstance(exc, exceptions.HTTPClientError | exceptions.EndpointConnectionError):
        return VendorConnectionError(str(exc))
    if isinstance(exc, HTTPError | exceptions.IncompleteReadError):
        return ConnectionError("the response broke off")
    return exc
