"""Exporter of traces that the settings name, and the export of what the log writer has stored."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from vectorforge.aws.queues import ReceivedMessage
from vectorforge.config import TracingSettings
from vectorforge.deadline import Deadline
from vectorforge.errors import ConfigurationError, VectorForgeError
from vectorforge.otlp.exporter import OtlpExporter, parse_pairs
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.credentials import CredentialStore, find_credentials

DELIVERIES: Final = 5
"""Deliveries of a message (``maxReceiveCount`` of the queue). The last one does not fail for its trace alone:
the dead-letter queue is for records that are not stored."""
_EXPORT_S = 10.0
_REST_S = 2.0
"""Seconds of an invocation that are left for its response, and for delaying messages."""
_CLOUDWATCH = re.compile(r"https://xray\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|api\.aws)/.*")


def trace_exporter(
    settings: TracingSettings,
    metrics: MetricsCollector,
    store: CredentialStore | None,
) -> OtlpExporter | None:
    """Return the exporter, or None unless ``VECTORFORGE_TRACING`` is "otel"; connects to nothing.

    Args:
        settings: The settings.
        metrics: Collector of ``traces.*``.
        store: Store of ``otlp_headers``, which the first export reads; None: there is none.

    Raises:
        ConfigurationError: The headers or the resource attributes cannot be parsed.
    """
    endpoint, headers = settings.otlp_endpoint, settings.otlp_headers
    if settings.tracing != "otel" or endpoint is None:
        return None
    parse_pairs(headers.get_secret_value() if headers else "", "VECTORFORGE_OTLP_HEADERS")
    cloudwatch = _CLOUDWATCH.fullmatch(endpoint)
    return OtlpExporter(
        endpoint,
        parse_pairs(settings.otlp_resource, "VECTORFORGE_OTLP_RESOURCE"),
        metrics,
        find_headers=lambda: find_credentials("otlp_headers", headers, store),
        sign=partial(sign_request, cloudwatch[1]) if cloudwatch else None,
    )


def sign_request(region: str, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a POST to X-Ray with its Signature Version 4; fetches the credentials.

    Raises:
        ConfigurationError: There are no credentials.
    """
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.exceptions import BotoCoreError
    from botocore.session import get_session

    request = AWSRequest("POST", url, data=body, headers=dict(headers))
    try:
        SigV4Auth(get_session().get_credentials(), "xray", region).add_auth(request)
    except BotoCoreError as exc:
        raise ConfigurationError(f"CloudWatch's request cannot be signed ({type(exc).__name__}).") from exc
    return dict(request.headers.items())


async def export_stored(
    exporter: OtlpExporter,
    traces: Mapping[str, str],
    messages: Sequence[Mapping[str, Any]],
    deadline: Deadline,
) -> dict[str, VectorForgeError]:
    """Export traces by message id; return the failures of messages to be delivered again."""
    limit_s = min(_EXPORT_S, deadline.remaining_s() - _REST_S)
    failures = await exporter.export(traces, limit_s=limit_s)
    last = {one["messageId"] for one in messages if ReceivedMessage.of(one).receive_count >= DELIVERIES}
    if given_up := last.intersection(failures):
        exporter.drop(len(given_up), f"{DELIVERIES} attempts failed.")
    return {name: error for name, error in failures.items() if name not in given_up}
