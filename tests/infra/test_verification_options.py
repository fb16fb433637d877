"""``make verify`` of a stage's options: readers, no proxy, OpenTelemetry, a domain, IPv6 alone. F-005."""

import dataclasses
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from infra.setting_types import NetworkSettings, OtelSettings
from infra.settings import DEV, STAGES
from infra.stage_settings import StageSettings
from infra.verification.points import Point, run_point
from infra.verification.stage import DeployedStage
from infra.verification.stream_points import domain_answers
from tests.infra.test_verification import deploy
from tests.infra.verified_stage import ALIAS, CONFIGURATION, check, log, reach
from tests.support.aws.fake_aws import REGION
from tests.support.aws.scripted_aws import ScriptedAws
from tests.support.http.live_api import live_api, settings_for
from vectorforge.local.postgres import EmbeddedPostgres

NOW = datetime.now(UTC)
BEFORE = NOW - timedelta(minutes=5)
PREFIX = "vectorforge-dev"
READERS = dataclasses.replace(DEV, database=dataclasses.replace(DEV.database, engine="aurora", readers=2))
NO_PROXY = dataclasses.replace(STAGES["lean"], stage="dev")
NAT = dataclasses.replace(DEV, network=NetworkSettings(egress="nat", nat_gateways=1))
TRACED = dataclasses.replace(NAT, otel=OtelSettings())
WRITER_LOG = "/aws/lambda/vectorforge-dev-log-writer"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedAws]:
    with ScriptedAws() as account:
        reach(account, monkeypatch)
        yield account


def measure(
    aws: ScriptedAws, namespace: str, name: str, value: float, *, at: datetime, **dimensions: str
) -> None:
    named = [{"Name": one, "Value": text} for one, text in dimensions.items()]
    data = [{"MetricName": name, "Dimensions": named, "Value": value, "Timestamp": at}]
    aws.client("cloudwatch").put_metric_data(Namespace=namespace, MetricData=data)


@pytest.mark.parametrize(("answered", "expected"), [(42, "passed"), (2, "failed")])
async def test_readers_must_answer_most_searches(aws: ScriptedAws, answered: int, expected: str) -> None:
    assert await check("readers") == ("skipped", "the stage has no readers")
    nothing = "no search in the last hour: query, wait, and repeat"
    assert await check("readers", READERS) == ("skipped", nothing)
    for outcome, number in (("behind", 3), ("answered", answered)):
        dimensions = {"service": "query", "outcome": outcome}
        measure(aws, "VectorForge/dev", "database.reader.searches", number, at=BEFORE, **dimensions)
    for reader, lag_ms in (("reader1", 12.4), ("reader2", 21.6)):
        named = f"vectorforge-dev-{reader}"
        measure(aws, "AWS/RDS", "AuroraReplicaLag", lag_ms, at=BEFORE, DBInstanceIdentifier=named)
    seen = f"readers answered {answered} of {answered + 3} searches of the last hour"
    lag = ", at most 22 ms behind" if expected == "passed" else ""
    assert await check("readers", READERS) == (expected, seen + lag)


@pytest.mark.parametrize(("used", "expected"), [(31.0, "passed"), (90.0, "failed")])
async def test_connections_without_proxy_must_suffice(
    postgres_server: EmbeddedPostgres,
    make_tenant: Callable[[], str],
    aws: ScriptedAws,
    used: float,
    expected: str,
) -> None:
    assert await check("connections") == ("skipped", "the stage has RDS Proxy")
    tenants = [make_tenant()]
    connections = partial(measure, aws, "AWS/RDS", "DatabaseConnections", DBInstanceIdentifier=PREFIX)
    connections(100, at=BEFORE)
    connections(used, at=NOW + timedelta(minutes=30))
    async with live_api(settings_for(postgres_server.app_url, tenants)) as served:
        deploy(aws, served.url, tenants)
        status, evidence = await check("connections", NO_PROXY)
    described = f"at most {used:g} of 112 connections after them"
    assert (status, evidence[-len(described) :]) == (expected, described)


def span(environment: str) -> str:
    attributes = {"service.name": "vectorforge", "deployment.environment.name": environment}
    return json.dumps({"resource": {"attributes": attributes}})


EXPORTED = "traces were exported 2 times in the last day, none was dropped"
LANGFUSE = OtelSettings(endpoint="https://langfuse.example.com/v1/traces")


@pytest.mark.parametrize(
    ("settings", "lines", "environment", "expected"),
    [
        (DEV, ["traces.exported"], "dev", ("skipped", "the stage has no `otel`")),
        (TRACED, ["stored"], "dev", ("skipped", "no trace in the last day: query, wait, and repeat")),
        (
            TRACED,
            ["traces.exported", "traces.dropped"],
            "dev",
            ("failed", "traces were dropped 1 times in the last day, exported 1 times"),
        ),
        (
            TRACED,
            ["traces.exported"] * 2,
            "other",
            ("failed", f"{EXPORTED}, and the log group aws/spans has none of them"),
        ),
        (
            TRACED,
            ["traces.exported"] * 2,
            "dev",
            ("passed", f"{EXPORTED}; spans are in the log group aws/spans"),
        ),
        (dataclasses.replace(DEV, otel=LANGFUSE), ["traces.exported"] * 2, "other", ("passed", EXPORTED)),
    ],
)
async def test_spans_must_arrive(
    aws: ScriptedAws,
    settings: StageSettings,
    lines: list[str],
    environment: str,
    expected: tuple[str, str],
) -> None:
    log(aws, "aws/spans", span("another"), span(environment))
    log(aws, WRITER_LOG, *(json.dumps({line: [1.0]}) for line in lines))
    assert await check("spans", settings) == expected


@contextmanager
def serving(address: str, status: int) -> Iterator[str]:
    """Serve ``status`` for any path at one address of this machine."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(HTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with Server((address, 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"[{address}]" if ":" in address else address
        yield f"http://{host}:{server.server_address[1]}"
        server.shutdown()


def test_domain_must_answer_by_both_versions() -> None:
    stage = DeployedStage(DEV, REGION)

    def checked(**urls: str) -> tuple[str, str]:
        point = Point("domain", "", partial(domain_answers, urls=urls))
        outcome = run_point(point, stage)
        return outcome.status, outcome.evidence

    assert checked() == ("skipped", "the stage has no `domain`")
    with serving("127.0.0.1", 200) as old, serving("127.0.0.1", 503) as broken:
        assert checked(IPv4=old, IPv6=old) == ("failed", "no address by IPv6")
        assert checked(IPv4=broken) == ("failed", "GET /health by IPv4: 503")
        assert checked(IPv4=old, IPv6="http://[::1]:9") == ("skipped", "this machine cannot connect by IPv6")
        if has_ipv6():
            with serving("::1", 200) as new:
                assert checked(IPv4=old, IPv6=new) == ("passed", "IPv4 200, IPv6 200")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def test_vendors_need_ipv6_where_egress_has_nothing_else(aws: ScriptedAws) -> None:
    assert await check("vendor-names", NAT) == ("skipped", "the stage's egress is not IPv6 alone")
    aws.answer("lambda", ALIAS, json.dumps({"FunctionVersion": "7"}))
    for host, expected in {
        "[::1]": ("passed", "::1: IPv6 addresses"),
        "127.0.0.1": ("failed", "without an IPv6 address: 127.0.0.1"),
    }.items():
        variables = {
            "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "local",
            "VECTORFORGE_OPENAI_BASE_URL": f"https://{host}/v1",
        }
        aws.answer("lambda", CONFIGURATION, json.dumps({"Environment": {"Variables": variables}}))
        assert await check("vendor-names") == expected


async def test_stream_through_domain_needs_domain(aws: ScriptedAws) -> None:
    assert await check("streamed-by-domain") == ("skipped", "the stage has no `domain`")
