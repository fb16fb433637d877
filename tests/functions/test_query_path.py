"""Path of one streamed query through the project's files, traced in a running query function."""

from collections.abc import Callable
from pathlib import Path

from infra.emulator.lambda_service.function_process import FunctionProcess
from tests.support.aws.live_query_function import query_surroundings
from tests.support.aws.query_events import load_event, query_function, response_of
from tests.support.http.live_api import key_of
from tests.support.query_trace import Trace, Tracer, common
from vectorforge.local.postgres import EmbeddedPostgres

MAX_FILES = 70


async def test_query_executes_few_files_on_lambda(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], tmp_path: Path
) -> None:
    tracer = Tracer(tmp_path / "trace")
    async with query_surroundings(postgres_server.app_url, make_tenant()) as surroundings:
        event = load_event("query_function_url_query_stream", x_api_key=key_of(surroundings.tenant))
        configuration = query_function(surroundings, "stream", variables=tracer.environment)
        async with FunctionProcess(configuration) as function:

            async def query() -> None:
                _, _, body = await response_of(await function.invoke(event))
                assert body.rstrip().rsplit("event: ", 1)[1].startswith("done")

            await query()  # the first one imports and connects
            traces: list[Trace] = []
            for _ in range(2):
                with tracer.recording() as recorded:
                    await query()
                traces += recorded
    trace = common(traces)
    assert len(trace.calls) <= MAX_FILES, "\n".join(trace.files)
