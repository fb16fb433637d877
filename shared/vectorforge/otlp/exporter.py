"""Posts traces to an OTLP/HTTP endpoint, in requests of a size that every backend accepts."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import unquote, urlsplit

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import ConfigurationError, TraceExportError, VectorForgeError
from vectorforge.otlp.encoding import encode_request, encode_trace
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.credentials import Credentials

logger = logging.getLogger(__name__)

TRACES_A_REQUEST = 25
"""With the longest texts these have less than the 5 MB that CloudWatch accepts:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-OTLPEndpoint.html"""
MAX_WAITING = 1_000
"""Traces that wait at most; later ones are dropped."""
_MAX_BATCH = 100
_EXPORT_S = 15.0
_FLUSH_S = 2.0
"""Longest wait of a shutdown for the last traces."""
_TIMEOUT_S = 5.0
"""Longest wait for a connection, and longest silence after it."""
_MAX_RESPONSE_BYTES = 16 * 1024
_REFUSED_KEY = (401, 403)
_RETRYABLE = (*_REFUSED_KEY, 429, 502, 503, 504)
"""https://opentelemetry.io/docs/specs/otlp/#failures-1, and refused keys, which may be replaced meanwhile."""
_PAIR = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*=\s*([\x20-\x7e]*)")

Sign = Callable[[str, bytes, Mapping[str, str]], Mapping[str, str]]
"""Returns the headers of a POST with its signature: address, body, headers. May connect."""


@dataclass(eq=False, slots=True)
class OtlpExporter:
    """Exports encoded traces.

    Args:
        endpoint: Address of the backend's traces, e.g. "http://localhost:4318/v1/traces".
        resource: Attributes of this service, e.g. ``service.name``.
        metrics: Collector of ``traces.exported`` and ``traces.dropped``.
        find_headers: Returns the source of further headers as ``parse_pairs`` reads them; it may connect.
        sign: Signs requests; None: they are not signed.
    """

    endpoint: str
    resource: Mapping[str, str]
    metrics: MetricsCollector
    _: KW_ONLY
    find_headers: Callable[[], Credentials | None] = lambda: None
    sign: Sign | None = None

    async def export(self, traces: Mapping[str, str], *, limit_s: float) -> dict[str, VectorForgeError]:
        """Export traces of ``encode_trace`` by any key; return the failures of those to export again.

        Traces that the backend will never accept are dropped. After a failure, or after ``limit_s``, no more
        are attempted.
        """
        waiting = dict(traces)
        try:
            async with asyncio.timeout(limit_s):
                while waiting:
                    group = list(waiting)[:TRACES_A_REQUEST]
                    await self._export([traces[key] for key in group])
                    for key in group:
                        del waiting[key]
        except VectorForgeError as exc:
            return dict.fromkeys(waiting, exc)
        except TimeoutError:
            error = TraceExportError("The backend of the traces did not respond in time.")
            return dict.fromkeys(waiting, error)
        return {}

    def drop(self, number: int, reason: str) -> None:
        """Count and log traces that will not be exported."""
        self.metrics.increment("traces.dropped", number)
        logger.error("%d traces were dropped: %s", number, reason)

    async def _export(self, traces: list[str]) -> None:
        status, response = await self._send(encode_request(self.resource, traces))
        if status in _RETRYABLE:
            raise TraceExportError(f"The backend of the traces responded with status {status}.")
        if not 200 <= status < 300:
            self.drop(len(traces), f"the backend refused them with status {status}.")
            return
        self.metrics.increment("traces.exported", len(traces))
        if b'"rejectedSpans"' in response:  # its text is not logged: it may quote attributes
            logger.warning("The backend of the traces rejected some spans")

    async def _send(self, body: bytes) -> tuple[int, bytes]:
        credentials = await asyncio.to_thread(self.find_headers)
        if credentials is None:
            return await asyncio.to_thread(self._post, body, "")
        key = await credentials.current()
        status, response = await asyncio.to_thread(self._post, body, key.get_secret_value())
        if status in _REFUSED_KEY and (other := await credentials.refresh(key)) != key:
            return await asyncio.to_thread(self._post, body, other.get_secret_value())
        return status, response

    def _post(self, body: bytes, more: str) -> tuple[int, bytes]:
        headers = {"content-type": "application/json", **parse_pairs(more, "VECTORFORGE_OTLP_HEADERS")}
        if self.sign is not None:
            headers = dict(self.sign(self.endpoint, body, headers))
        url = urlsplit(self.endpoint)
        kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", url._replace(scheme="", netloc="").geturl() or "/", body, headers)
            response = connection.getresponse()  # redirects are not followed: the headers hold a key
            return response.status, response.read(_MAX_RESPONSE_BYTES)
        except (OSError, HTTPException) as exc:
            reason = type(exc).__name__
            raise TraceExportError(f"The backend of the traces cannot be reached ({reason}).") from exc
        finally:
            connection.close()


def parse_pairs(text: str, setting: str) -> dict[str, str]:
    """Parse "name=value,name=value" with percent-encoded values, as in ``OTEL_EXPORTER_OTLP_HEADERS``.

    Raises:
        ConfigurationError: The text has another form; the error names ``setting``, never a value.
    """
    pairs = {}
    for part in filter(None, map(str.strip, text.split(","))):
        if (pair := _PAIR.fullmatch(unquote(part))) is None:
            raise ConfigurationError(f"{setting} must be name=value pairs, separated by commas.")
        pairs[pair[1]] = pair[2]
    return pairs


class BackgroundExport:
    """Exports the traces of a process that no log writer reads for, such as a laptop's.

    In one task, which the first trace starts.

    Args:
        exporter: Destination.
        with_texts: See ``encode_trace``.
        waits_s: Waits before the attempts of a batch; then it is dropped.
    """

    def __init__(
        self, exporter: OtlpExporter, *, with_texts: bool, waits_s: tuple[float, ...] = (0.0, 1.0, 5.0, 15.0)
    ) -> None:
        self._exporter = exporter
        self._with_texts = with_texts
        self._waits_s = waits_s
        self._waiting: asyncio.Queue[tuple[str, QueryLog]] = asyncio.Queue(MAX_WAITING)
        self._task: asyncio.Task[None] | None = None

    def offer(self, tenant_id: str, log: QueryLog) -> None:
        """Accept a record, and drop it if the queue is full or the record has no trace. Does not wait."""
        if log.trace is None:
            return
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            self._waiting.put_nowait((tenant_id, log))
        except asyncio.QueueFull:
            self._exporter.drop(1, "the queue is full.")

    async def aclose(self) -> None:
        """Export what waits, for at most 2 s, and end; safe to call twice."""
        task, self._task = self._task, None
        if task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._waiting.join(), _FLUSH_S)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < _MAX_BATCH and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            await self._export(batch)
            for _ in batch:
                self._waiting.task_done()

    async def _export(self, batch: list[tuple[str, QueryLog]]) -> None:
        encoded = [encode_trace(tenant_id, log, with_texts=self._with_texts) for tenant_id, log in batch]
        traces = {str(number): trace for number, trace in enumerate(encoded)}
        for wait_s in self._waits_s:
            await asyncio.sleep(wait_s)
            failures = await self._exporter.export(traces, limit_s=_EXPORT_S)
            traces = {key: traces[key] for key in failures}
            if not traces:
                return
        self._exporter.drop(len(traces), f"{len(self._waits_s)} attempts failed.")
