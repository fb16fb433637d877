"""An OpenTelemetry backend: an HTTP port that accepts traces and parses them with OTLP's own messages.

JSON is read by the rules of https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids are
hexadecimal where protobuf's mapping has base64, and unknown fields fail the test.
"""

import base64
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span with its attributes as Python values."""

    proto: Span
    attributes: dict[str, Any]
    resource: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the span."""
        return self.proto.name


class OtlpReceiver:
    """Use it as a context manager."""

    def __init__(self) -> None:
        receiver = self
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        """Path, headers in lower case, and body of every request."""
        self.statuses: list[int] = []
        """Statuses of the next responses; then 200."""
        self.answer = b"{}"
        self.is_released = threading.Event()
        """Responses wait for it."""
        self.is_released.set()
        self._spans: list[ReceivedSpan] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append((self.path, headers, body))
                receiver.is_released.wait()
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                if status == 200:
                    receiver._accept(headers, body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(receiver.answer)))
                self.end_headers()
                with suppress(BrokenPipeError):  # an exporter that stopped waiting
                    self.wfile.write(receiver.answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's signature
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def spans(self) -> list[ReceivedSpan]:
        """Accepted spans in their order."""
        return list(self._spans)

    def _accept(self, headers: Mapping[str, str], body: bytes) -> None:
        assert headers["content-type"] == "application/json"
        fields = json.loads(body)
        for resource in fields["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    for name in ("traceId", "spanId", "parentSpanId"):
                        span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        for group in ParseDict(fields, ExportTraceServiceRequest()).resource_spans:
            named = _plain(group.resource.attributes)
            self._spans += [
                ReceivedSpan(span, _plain(span.attributes), named)
                for scope in group.scope_spans
                for span in scope.spans
            ]


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)
