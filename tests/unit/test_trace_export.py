"""Export of traces as OTLP, to a backend behind a real socket."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest
from pydantic import SecretStr

from tests.support.http.otlp_receiver import OtlpReceiver
from tests.support.rag.query_logs import make_log
from tests.unit.traced_logs import PARENT_ID, TRACE_ID, traced_log
from vectorforge.aws.trace_export import sign_request, trace_exporter
from vectorforge.config import TracingSettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError, TraceExportError
from vectorforge.otlp.encoding import encode_trace
from vectorforge.otlp.exporter import (
    MAX_WAITING,
    TRACES_A_REQUEST,
    BackgroundExport,
    OtlpExporter,
    parse_pairs,
)
from vectorforge.telemetry import SPAN_NAMES, InMemoryMetrics
from vectorforge.vendors.credentials import KeyOrigin

TEXTS = ("How long must the dough rise?", "Two hours.")


@pytest.fixture
def backend() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def metrics() -> InMemoryMetrics:
    return InMemoryMetrics()


@pytest.fixture
def exporter(backend: OtlpReceiver, metrics: InMemoryMetrics) -> OtlpExporter:
    return OtlpExporter(backend.url, {"service.name": "vectorforge"}, metrics)


class TestExport:
    async def test_spans_have_names_times_parents_and_genai_attributes(
        self, exporter: OtlpExporter, backend: OtlpReceiver, metrics: InMemoryMetrics
    ) -> None:
        log = traced_log()
        assert await exporter.export({"1": encode_trace("acme", log, with_texts=False)}, limit_s=30) == {}
        assert [span.name for span in backend.spans] == list(SPAN_NAMES)
        root, *others = [span.proto for span in backend.spans]
        assert {span.trace_id.hex() for span in (root, *others)} == {TRACE_ID}
        assert root.parent_span_id.hex() == PARENT_ID
        assert {span.parent_span_id for span in others} == {root.span_id}
        assert all(
            root.start_time_unix_nano <= s.start_time_unix_nano <= s.end_time_unix_nano for s in others
        )
        spans = {span.name: span for span in backend.spans}
        assert spans["generate"].attributes == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.conversation.id": str(log.conversation_id),
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.request.temperature": 0.5,
            "gen_ai.response.model": "gpt-4o",
            "gen_ai.usage.input_tokens": 900,
            "gen_ai.usage.output_tokens": 12,
        }
        assert spans["retrieve"].attributes["gen_ai.operation.name"] == "retrieval"
        assert spans["query"].attributes["vectorforge.tenant"] == "acme"
        assert spans["query"].attributes["vectorforge.degraded"] == ["provider", "stale"]
        assert spans["query"].attributes["vectorforge.cached"] is True
        assert spans["query"].resource == {"service.name": "vectorforge"}
        assert [spans[name].proto.kind for name in SPAN_NAMES] == [2, 1, 3, 1, 3, 1]
        assert metrics.get("traces.exported").total == 1

    async def test_texts_are_exported_only_if_set(
        self, exporter: OtlpExporter, backend: OtlpReceiver
    ) -> None:
        log = traced_log()
        await exporter.export({"1": encode_trace("acme", log, with_texts=False)}, limit_s=30)
        assert not any(text.encode() in backend.requests[0][2] for text in TEXTS)
        await exporter.export({"1": encode_trace("acme", log, with_texts=True)}, limit_s=30)
        generate = backend.spans[-2].attributes
        assert TEXTS[0] in generate["gen_ai.input.messages"]
        assert TEXTS[1] in generate["gen_ai.output.messages"]

    async def test_failed_query_has_error_status_and_code(
        self, exporter: OtlpExporter, backend: OtlpReceiver
    ) -> None:
        log = traced_log(outcome="error", error_code="llm_timeout", request=None)
        await exporter.export({"1": encode_trace("acme", log, with_texts=False)}, limit_s=30)
        root = backend.spans[0]
        assert (root.proto.status.code, root.attributes["error.type"]) == (2, "llm_timeout")
        assert backend.spans[-2].attributes == {}  # no model was called

    @pytest.mark.parametrize("status", [401, 403, 429, 502, 503, 504])
    async def test_temporary_failure_is_returned_for_another_attempt(
        self, exporter: OtlpExporter, backend: OtlpReceiver, status: int
    ) -> None:
        backend.statuses = [status]
        traces = {"1": encode_trace("acme", traced_log(), with_texts=False)}
        failures = await exporter.export(traces, limit_s=30)
        assert isinstance(failures["1"], TraceExportError)
        assert await exporter.export(traces, limit_s=30) == {}
        assert len(backend.spans) == len(SPAN_NAMES)

    @pytest.mark.parametrize("status", [302, 400, 404, 500])
    async def test_final_failure_drops_traces(
        self, exporter: OtlpExporter, backend: OtlpReceiver, metrics: InMemoryMetrics, status: int
    ) -> None:
        backend.statuses = [status]
        traces = {"1": encode_trace("acme", traced_log(), with_texts=False)}
        assert await exporter.export(traces, limit_s=30) == {}
        assert len(backend.requests) == 1
        assert metrics.get("traces.dropped").total == 1

    async def test_request_has_limited_number_of_traces_and_rest_fails_together(
        self, exporter: OtlpExporter, backend: OtlpReceiver
    ) -> None:
        backend.statuses = [200, 503]
        trace = encode_trace("acme", traced_log(), with_texts=False)
        traces = {str(number): trace for number in range(3 * TRACES_A_REQUEST)}
        failures = await exporter.export(traces, limit_s=30)
        assert set(failures) == {str(number) for number in range(TRACES_A_REQUEST, 3 * TRACES_A_REQUEST)}
        assert len(backend.requests) == 2

    async def test_largest_texts_fit_into_a_request_of_cloudwatch(self) -> None:
        log = traced_log(query_text="\U0001f600" * 99_999, generated_response='"' * 99_999)
        trace = encode_trace("acme", log, with_texts=True)
        assert len(trace.encode()) * TRACES_A_REQUEST < 5_000_000

    async def test_unreachable_and_silent_backends_fail_within_the_limit(
        self, backend: OtlpReceiver, exporter: OtlpExporter
    ) -> None:
        nowhere = OtlpExporter("http://127.0.0.1:1/v1/traces", {}, InMemoryMetrics())
        assert set(await nowhere.export({"1": ""}, limit_s=30)) == {"1"}
        backend.is_released.clear()
        assert set(await exporter.export({"1": ""}, limit_s=0.05)) == {"1"}

    async def test_rotated_header_is_read_again_after_a_refusal(self, backend: OtlpReceiver) -> None:
        class Rotated:
            origin = KeyOrigin.SECRET

            async def current(self) -> SecretStr:
                return SecretStr("Authorization=Basic b2xk")

            async def refresh(self, refused: SecretStr) -> SecretStr:
                return SecretStr("Authorization=Basic bmV3==,x-langfuse-ingestion-version=4")

        backend.statuses = [401]
        exporter = OtlpExporter(backend.url, {}, InMemoryMetrics(), find_headers=Rotated)
        assert await exporter.export({"1": ""}, limit_s=30) == {}
        sent = [headers["authorization"] for _, headers, _ in backend.requests]
        assert sent == ["Basic b2xk", "Basic bmV3=="]
        assert backend.requests[1][1]["x-langfuse-ingestion-version"] == "4"

    async def test_signed_request_has_signature_of_region_and_service(
        self, backend: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        exporter = OtlpExporter(
            backend.url, {}, InMemoryMetrics(), sign=lambda *request: sign_request("eu-central-1", *request)
        )
        assert await exporter.export({"1": ""}, limit_s=30) == {}
        authorization = backend.requests[0][1]["authorization"]
        assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-central-1/xray/aws4_request" in authorization


class TestSettings:
    @pytest.mark.parametrize(
        ("value", "meaning"), [("true", "xray"), ("false", "off"), ("xray", "xray"), ("off", "off")]
    )
    def test_former_values_of_tracing_are_accepted(
        self, value: str, meaning: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("VECTORFORGE_TRACING", value)
        assert VectorForgeConfig.from_environment().tracing.tracing == meaning

    def test_otel_without_endpoint_is_rejected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VECTORFORGE_TRACING", "otel")
        with pytest.raises(ConfigurationError, match="VECTORFORGE_OTLP_ENDPOINT"):
            VectorForgeConfig.from_environment()

    @pytest.mark.parametrize(
        ("endpoint", "is_signed"),
        [
            ("https://xray.eu-central-1.amazonaws.com/v1/traces", True),
            ("https://xray.eu-central-1.amazonaws.com.evil.example/v1/traces", False),
            ("https://cloud.langfuse.com/api/public/otel/v1/traces", False),
        ],
    )
    def test_only_requests_to_cloudwatch_are_signed(self, endpoint: str, is_signed: bool) -> None:
        settings = TracingSettings(tracing="otel", otlp_endpoint=endpoint)
        exporter = trace_exporter(settings, InMemoryMetrics(), None)
        assert exporter is not None
        assert (exporter.sign is not None) is is_signed

    @pytest.mark.parametrize("text", ["canary", "a b=c", "x=a%0d%0ab: c", "=v"])
    def test_invalid_pairs_are_rejected_without_their_value(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="VECTORFORGE_OTLP_HEADERS") as caught:
            parse_pairs(text, "VECTORFORGE_OTLP_HEADERS")
        assert "canary" not in caught.value.message

    def test_pairs_may_be_percent_encoded(self) -> None:
        assert parse_pairs("Authorization=Basic%20YTpi+/==, b = 1,", "X") == {
            "Authorization": "Basic YTpi+/==",
            "b": "1",
        }


class TestBackground:
    async def test_offered_trace_is_exported_after_a_failure(
        self, exporter: OtlpExporter, backend: OtlpReceiver, metrics: InMemoryMetrics
    ) -> None:
        backend.statuses = [503]
        background = BackgroundExport(exporter, with_texts=False, waits_s=(0.0, 0.0))
        background.offer("acme", traced_log())
        background.offer("acme", make_log())  # without a trace
        await background.aclose()
        assert len(backend.requests) == 2
        assert [span.name for span in backend.spans] == list(SPAN_NAMES)
        assert metrics.total("traces.dropped") == 0

    async def test_trace_is_dropped_after_the_last_attempt(
        self, exporter: OtlpExporter, backend: OtlpReceiver, metrics: InMemoryMetrics
    ) -> None:
        backend.statuses = [503] * 3
        background = BackgroundExport(exporter, with_texts=False, waits_s=(0.0, 0.0, 0.0))
        background.offer("acme", traced_log())
        await background.aclose()
        assert len(backend.requests) == 3
        assert metrics.total("traces.dropped") == 1

    async def test_silent_backend_fills_the_queue_and_no_more(
        self, exporter: OtlpExporter, backend: OtlpReceiver, metrics: InMemoryMetrics
    ) -> None:
        backend.is_released.clear()
        background = BackgroundExport(exporter, with_texts=False)
        log = traced_log()
        for _ in range(MAX_WAITING + 7):  # without a pause, in which the task could take any
            background.offer("acme", log)
        assert metrics.total("traces.dropped") == 7
        backend.is_released.set()
        async with aclosing(background):
            while metrics.total("traces.exported") < MAX_WAITING:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        assert len({span.proto.span_id for span in backend.spans}) == len(SPAN_NAMES)
