"""Posts traces to an OTLP/HTTP endpoint, in requests of a size that every backend accepts."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import unquote, urlsplit

from vectorforge.errors import ConfigurationError, TraceExportError, VectorForgeError
from vectorforge.otlp.encoding import encode_request
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.credentials import Credentials

logger = logging.getLogger(__name__)

TRACES_A_REQUEST = 25
"""With the longest texts these have less than the 5 MB that CloudWatch accepts:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-OTLPEndpoint.html"""
_TIMEOUT_S = 5.0
"""Longest wait for a connection, and longest silence after it."""
_MAX_RESPONSE_BYTES = 16 * 1024
_REFUSED_KEY = (401, 403)
_RETRYABLE = (*_REFUSED_KEY, 429, 502, 503, 504)
"""https://opentelemetry.io/docs/specs/otlp/#failures-1, and refused keys, which may be replaced meanwhile."""
_PAIR = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*=\s*([\x20-\x7e]*)")

Sign = Callable[[str, bytes, Mapping[str, str]], Mapping[str, str]]
"""Returns the headers of a POST with its signature: address, body, headers. May connect."""


class OtlpExporter:
    """Exports encoded traces.

    Args:
        endpoint: Address of the backend's traces, e.g. "http://localhost:4318/v1/traces".
        resource: Attributes of this service, e.g. ``service.name``.
        metrics: Collector of ``traces.exported`` and ``traces.dropped``.
        find_headers: Returns the source of further headers as ``parse_pairs`` reads them; it may connect.
        sign: Signs requests; None: they are not signed.
    """

    def __init__(
        self,
        endpoint: str,
        resource: Mapping[str, str],
        metrics: MetricsCollector,
        *,
        find_headers: Callable[[], Credentials | None] = lambda: None,
        sign: Sign | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._resource = resource
        self._metrics = metrics
        self._find_headers = find_headers
        self._sign = sign

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
        self._metrics.increment("traces.dropped", number)
        logger.error("%d traces were dropped: %s", number, reason)

    async def _export(self, traces: list[str]) -> None:
        status, response = await self._send(encode_request(self._resource, traces))
        if status in _RETRYABLE:
            raise TraceExportError(f"The backend of the traces responded with status {status}.")
        if not 200 <= status < 300:
            self.drop(len(traces), f"the backend refused them with status {status}.")
            return
        self._metrics.increment("traces.exported", len(traces))
        if b'"rejectedSpans"' in response:  # its text is not logged: it may quote attributes
            logger.warning("The backend of the traces rejected some spans")

    async def _send(self, body: bytes) -> tuple[int, bytes]:
        credentials = await asyncio.to_thread(self._find_headers)
        if credentials is None:
            return await asyncio.to_thread(self._post, body, "")
        key = await credentials.current()
        status, response = await asyncio.to_thread(self._post, body, key.get_secret_value())
        if status in _REFUSED_KEY and (other := await credentials.refresh(key)) != key:
            return await asyncio.to_thread(self._post, body, other.get_secret_value())
        return status, response

    def _post(self, body: bytes, more: str) -> tuple[int, bytes]:
        headers = {"content-type": "application/json", **parse_pairs(more, "VECTORFORGE_OTLP_HEADERS")}
        if self._sign is not None:
            headers = dict(self._sign(self._endpoint, body, headers))
        url = urlsplit(self._endpoint)
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
