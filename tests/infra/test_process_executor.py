"""LocalStack's functions as processes: environment and end. LocalStack itself is not needed."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest

from infra.bundling.bundle import Bundle
from infra.emulator.lambda_service.invocation import FunctionFailedError
from infra.emulator.localstack_plugins.function_sandbox import FunctionSandbox, SandboxConfiguration
from infra.emulator.localstack_plugins.streamed_response import as_proxy_response

Start: TypeAlias = Callable[..., FunctionSandbox]

HANDLER = """\
import json, os, signal, sys, time

if os.environ.get("FAIL") == "init":
    raise RuntimeError("the init phase failed")
if os.environ.get("FAIL") == "exit":
    os._exit(7)


def handler(event, context):
    print(f"got {event}")
    what = event.get("do")
    if what == "raise":
        raise ValueError("boo")
    if what == "exit":
        sys.stdout.flush()
        os._exit(3)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "sleep":
        time.sleep(60)
    if what == "large":
        return "x" * 7_000_000
    if what == "child":
        pid = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "300")
        return {"pid": pid}
    return {
        "environment": dict(os.environ),
        "path": sys.path,
        "argv": sys.argv,
        "remaining": context.get_remaining_time_in_millis(),
        "arn": context.invoked_function_arn,
        "modules": sorted(sys.modules),
    }
"""
STREAMING = """\
from vectorforge.runtime import StreamingHandler


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x-a", b"1"), (b"x-a", b"2")]})
    await send({"type": "http.response.body", "body": "gr\\u00fc".encode(), "more_body": True})
    if scope["path"] == "/breaks":
        raise RuntimeError("in the middle")
    await send({"type": "http.response.body", "body": b"n"})


handler = StreamingHandler(app)
"""


@pytest.fixture(scope="module")
def code(bundle: Callable[[str], tuple[Path, Bundle]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a function's code: the packages of a real bundle, and handlers of these tests."""
    folder, _ = bundle("migrate")
    made = tmp_path_factory.mktemp("code")
    for entry in folder.iterdir():
        (made / entry.name).symlink_to(entry)
    (made / "sample.py").write_text(HANDLER)
    (made / "streaming.py").write_text(STREAMING)
    return made


@pytest.fixture
def start(code: Path, tmp_path: Path) -> Iterator[Start]:
    """Start function processes whose init phase has succeeded."""
    started: list[FunctionSandbox] = []

    def make(
        *, handler: str = "sample.handler", ready: bool = True, timeout_s: float = 30, **variables: object
    ) -> FunctionSandbox:
        mounts = {"/var/task/certificates/database.pem": "/somewhere/root.pem"}
        configuration = SandboxConfiguration(
            code, {"_HANDLER": handler, **variables}, timeout_s=timeout_s, mounts=mounts
        )
        started.append(FunctionSandbox(configuration, tmp_path / "function.log"))
        if ready:
            started[-1].start()
        return started[-1]

    yield make
    for sandbox in started:
        sandbox.stop()


ARN = "arn:aws:lambda:us-east-1:000000000000:function:sample:live"


def invoke(sandbox: FunctionSandbox, payload: object, *, fails: bool) -> Any:
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793"
    outcome = sandbox.invoke(
        json.dumps(payload).encode(), request_id="request-1", function_arn=ARN, trace_id=trace
    )
    assert outcome.is_error is fails, outcome
    return json.loads(outcome.payload)


def answer(sandbox: FunctionSandbox, payload: object) -> Any:
    return invoke(sandbox, payload, fails=False)


def error(sandbox: FunctionSandbox, payload: object) -> dict[str, Any]:
    failure: dict[str, Any] = invoke(sandbox, payload, fails=True)
    return failure


def test_process_environment_excludes_host_variables(
    start: Start, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THIS_MACHINE", "canary")
    sandbox = start(
        LAMBDA_TASK_ROOT="/var/task",
        ROOTS="host=h sslrootcert=/var/task/certificates/database.pem",
        OTHER="/var/task/a:/var/task/b",
        UNTOUCHED="/var/tasks",
        AWS_LAMBDA_LOG_LEVEL="Info",
        LOCALSTACK_RUNTIME_ID="x",
        AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512,
    )
    seen = answer(sandbox, {})
    environment = seen["environment"]
    assert "canary" not in str(environment)
    assert "LOCALSTACK_RUNTIME_ID" not in environment
    assert environment["LAMBDA_TASK_ROOT"] == environment["PYTHONPATH"] == str(code)
    assert environment["ROOTS"] == "host=h sslrootcert=/somewhere/root.pem"
    assert environment["OTHER"] == f"{code}/a:{code}/b"
    assert environment["UNTOUCHED"] == "/var/tasks"
    assert environment["AWS_LAMBDA_LOG_LEVEL"] == "INFO"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert environment["AWS_EXECUTION_ENV"] == f"AWS_Lambda_python{version}"
    assert not any("site-packages" in entry for entry in seen["path"])
    assert "pytest" not in seen["modules"]
    assert 0 < seen["remaining"] <= 30_000
    assert seen["arn"] == ARN


def test_exec_wrapper_starts_the_runtime(start: Start) -> None:
    """Our runtime runs instead of awslambdaric's own loop: its clients accept streams."""
    wrapped = start(AWS_LAMBDA_EXEC_WRAPPER="/var/task/vectorforge/runtime/exec_wrapper")
    assert "vectorforge.runtime.process" in answer(wrapped, {})["modules"]
    assert "vectorforge.runtime.process" not in answer(start(), {})["modules"]


def test_process_handles_consecutive_events(start: Start) -> None:
    sandbox = start()
    first = answer(sandbox, {})["argv"]
    assert first == answer(sandbox, {})["argv"]
    assert error(sandbox, {"do": "raise"})["errorType"] == "ValueError"
    assert answer(sandbox, {})
    assert sandbox.process.starts == 1


@pytest.mark.parametrize(
    ("do", "reason"), [("exit", "exit status 3"), ("kill", "signal: killed")]
)  # fmt: skip
def test_exited_process_fails_its_event(start: Start, do: str, reason: str) -> None:
    sandbox = start()
    assert error(sandbox, {"do": do}) == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: request-1 Error: Runtime exited with error: {reason}",
    }
    assert not sandbox.process.is_running
    assert answer(sandbox, {})  # by another process
    assert sandbox.process.starts == 2


def test_timed_out_function_is_killed_with_its_children(
    start: Start,
) -> None:
    sandbox = start(timeout_s=1.5)
    child = psutil.Process(answer(sandbox, {"do": "child"})["pid"])
    assert error(sandbox, {"do": "sleep"}) == {
        "errorType": "Sandbox.Timedout",
        "errorMessage": "RequestId: request-1 Error: Task timed out after 1.50 seconds",
    }
    assert not sandbox.process.is_running
    assert psutil.wait_procs([child], timeout=10)[1] == []


@pytest.mark.parametrize(
    ("fail", "error_type"), [("init", "RuntimeError"), ("exit", "Runtime.ExitError")]
)  # fmt: skip
def test_failed_init_phase_reports_error_type(start: Start, fail: str, error_type: str) -> None:
    with pytest.raises(FunctionFailedError) as failed:
        start(FAIL=fail)
    assert json.loads(failed.value.error.payload)["errorType"] == error_type


def test_missing_interpreter_raises_init_error(start: Start) -> None:
    with pytest.raises(FunctionFailedError, match=r"Runtime\.InvalidEntrypoint"):
        start(AWS_LAMBDA_EXEC_WRAPPER="/var/task/missing")


def test_stop_releases_waiter_of_init_phase(start: Start, tmp_path: Path) -> None:
    """LocalStack stops an environment that takes too long, from another thread."""
    wrapper = tmp_path / "sleeps"
    wrapper.write_text("#!/bin/sh\nexec sleep 600\n")
    wrapper.chmod(0o755)
    sandbox = start(ready=False, AWS_LAMBDA_EXEC_WRAPPER=str(wrapper))
    threading.Timer(0.2, sandbox.stop).start()
    with pytest.raises(FunctionFailedError):
        sandbox.start()


def test_oversized_response_fails_its_event_only(
    start: Start,
) -> None:
    sandbox = start()
    assert error(sandbox, {"do": "large"})["errorType"] == "Function.ResponseSizeTooLarge"


def test_streamed_response_is_returned_whole(start: Start) -> None:
    sandbox = start(
        handler="streaming.handler", AWS_LAMBDA_EXEC_WRAPPER="/var/task/vectorforge/runtime/exec_wrapper"
    )
    request = json.loads(
        (Path(__file__).parents[2] / "events" / "query_apigateway_rest_health.json").read_text()
    )
    assert answer(sandbox, request) == {
        "statusCode": 201,
        "headers": {},
        "multiValueHeaders": {"x-a": ["1", "2"]},
        "body": "grün",
        "isBase64Encoded": False,
    }
    breaks = {
        **request,
        "path": "/breaks",
        "requestContext": {**request["requestContext"], "path": "/breaks"},
    }
    assert "errorType" in error(sandbox, breaks)
    assert answer(sandbox, request)["statusCode"] == 201


def test_binary_streamed_response_with_cookies_is_base64_encoded() -> None:
    prelude = {"statusCode": 200, "headers": {"content-type": "image/png"}, "cookies": ["a=1", "b=2"]}
    response = json.loads(
        as_proxy_response(json.dumps(prelude).encode() + b"\0" * 8 + b"\xff\0\0\0\0\0\0\0\0\xfe")
    )
    assert response == {
        "statusCode": 200,
        "headers": {"content-type": "image/png"},
        "multiValueHeaders": {"set-cookie": ["a=1", "b=2"]},
        "body": "/wAAAAAAAAAA/g==",
        "isBase64Encoded": True,
    }


def test_function_output_is_returned_per_event_and_logged(start: Start, tmp_path: Path) -> None:
    sandbox = start()
    sandbox.take_output()
    for number in range(20):
        answer(sandbox, {"number": number})
        assert sandbox.take_output() == f"got {{'number': {number}}}\n"
    error(sandbox, {"do": "exit"})
    assert sandbox.take_output() == "got {'do': 'exit'}\n"
    assert (tmp_path / "function.log").read_text().count("got ") == 21
