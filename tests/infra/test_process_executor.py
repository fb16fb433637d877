"""LocalStack's functions as processes: what they see, and how they end. LocalStack itself is not needed."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.bundling import Bundle
from infra.emulator.localstack_plugins.process_output import ProcessOutput
from infra.emulator.localstack_plugins.runtime_api import Event, InitError, Outcome
from infra.emulator.localstack_plugins.sandbox import Sandbox, SandboxConfiguration
from infra.emulator.localstack_plugins.streamed_response import as_proxy_response

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
    """A function's code: the packages of a real bundle, and handlers of these tests."""
    folder, _ = bundle("migrate")
    made = tmp_path_factory.mktemp("code")
    for entry in folder.iterdir():
        (made / entry.name).symlink_to(entry)
    (made / "sample.py").write_text(HANDLER)
    (made / "streaming.py").write_text(STREAMING)
    return made


@pytest.fixture
def output(tmp_path: Path) -> ProcessOutput:
    return ProcessOutput(tmp_path / "function.log")


@pytest.fixture
def start(code: Path, output: ProcessOutput) -> Iterator[Callable[..., Sandbox]]:
    """Starts a function's process, whose init phase has ended well when this gives it."""
    started: list[Sandbox] = []

    def make(*, handler: str = "sample.handler", ready: bool = True, **variables: object) -> Sandbox:
        mounts = {"/var/task/certificates/database.pem": "/somewhere/root.pem"}
        configuration = SandboxConfiguration(code, {"_HANDLER": handler, **variables}, mounts=mounts)
        started.append(Sandbox(configuration, output))
        if ready:
            started[-1].wait_until_ready()
        return started[-1]

    yield make
    for sandbox in started:
        sandbox.stop()


def event(payload: object, request_id: str = "request-1") -> Event:
    headers = {
        "Lambda-Runtime-Deadline-Ms": str(int((time.time() + 30) * 1000)),
        "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:000000000000:function:sample",
        "Lambda-Runtime-Trace-Id": "Root=1-5759e988-bd862e3fe1be46a994272793",
    }
    return Event(request_id, json.dumps(payload).encode(), headers)


def answer(sandbox: Sandbox, payload: object, *, timeout_s: float = 30) -> Any:
    outcome = sandbox.invoke(event(payload), timeout_s)
    assert outcome is not None
    assert not outcome.is_error, outcome
    return json.loads(outcome.payload)


def error(sandbox: Sandbox, payload: object, *, timeout_s: float = 30) -> dict[str, Any]:
    outcome = sandbox.invoke(event(payload), timeout_s)
    assert outcome is not None
    assert outcome.is_error, outcome
    failure: dict[str, Any] = json.loads(outcome.payload)
    return failure


def test_a_process_sees_its_code_and_nothing_of_this_machine(
    start: Callable[..., Sandbox], code: Path, monkeypatch: pytest.MonkeyPatch
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
    assert seen["arn"].endswith(":function:sample")


def test_the_wrapper_of_production_is_what_starts_it(start: Callable[..., Sandbox]) -> None:
    """Our runtime runs, and not awslambdaric's own loop: its clients take streams."""
    wrapped = start(AWS_LAMBDA_EXEC_WRAPPER="/var/task/vectorforge/runtime/exec_wrapper")
    assert "vectorforge.runtime.client" in answer(wrapped, {})["modules"]
    assert "vectorforge.runtime.client" not in answer(start(), {})["modules"]


def test_one_process_answers_one_event_after_the_other(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    first = answer(sandbox, {})["argv"]
    assert first == answer(sandbox, {})["argv"]
    assert error(sandbox, {"do": "raise"})["errorType"] == "ValueError"
    assert answer(sandbox, {})
    assert sandbox.is_running


@pytest.mark.parametrize(
    ("do", "reason"), [("exit", "exit status 3"), ("kill", "signal: killed")]
)  # fmt: skip
def test_a_process_that_ends_fails_its_event(start: Callable[..., Sandbox], do: str, reason: str) -> None:
    sandbox = start()
    assert error(sandbox, {"do": do}) == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: request-1 Error: Runtime exited with error: {reason}",
    }
    assert not sandbox.is_running
    # Who hands it another event learns that the process did not get it.
    assert sandbox.invoke(event({}), 30) is None


def test_a_function_that_takes_too_long_is_killed_with_its_children(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    child = psutil.Process(answer(sandbox, {"do": "child"})["pid"])
    assert error(sandbox, {"do": "sleep"}, timeout_s=0.5) == {
        "errorType": "Sandbox.Timedout",
        "errorMessage": "RequestId: request-1 Error: Task timed out after 0.50 seconds",
    }
    assert not sandbox.is_running
    assert psutil.wait_procs([child], timeout=10)[1] == []


@pytest.mark.parametrize(
    ("fail", "error_type"), [("init", "RuntimeError"), ("exit", "Runtime.ExitError")]
)  # fmt: skip
def test_an_init_phase_that_fails_says_why(start: Callable[..., Sandbox], fail: str, error_type: str) -> None:
    with pytest.raises(InitError) as failed:
        start(FAIL=fail)
    assert json.loads(failed.value.payload)["errorType"] == error_type


def test_an_interpreter_that_is_not_there_is_an_init_error(code: Path, output: ProcessOutput) -> None:
    configuration = SandboxConfiguration(
        code, {"_HANDLER": "sample.handler", "AWS_LAMBDA_EXEC_WRAPPER": "/var/task/missing"}
    )
    with pytest.raises(InitError, match=r"Runtime\.InvalidEntrypoint"):
        Sandbox(configuration, output)


def test_stopping_ends_whoever_waits_for_the_init_phase(
    start: Callable[..., Sandbox], tmp_path: Path
) -> None:
    """LocalStack stops an environment that takes too long, from another thread."""
    wrapper = tmp_path / "sleeps"
    wrapper.write_text("#!/bin/sh\nexec sleep 600\n")
    wrapper.chmod(0o755)
    sandbox = start(ready=False, AWS_LAMBDA_EXEC_WRAPPER=str(wrapper))
    threading.Timer(0.2, sandbox.stop).start()
    with pytest.raises(InitError):
        sandbox.wait_until_ready()


def test_a_response_over_the_limit_is_an_error_of_the_event_alone(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    assert error(sandbox, {"do": "large"})["errorType"] == "Function.ResponseSizeTooLarge"


def test_a_streamed_response_arrives_whole(start: Callable[..., Sandbox]) -> None:
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


def test_a_streamed_response_with_cookies_that_is_no_text() -> None:
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


def test_what_a_function_writes_is_told_with_its_event_and_kept(
    start: Callable[..., Sandbox], output: ProcessOutput, tmp_path: Path
) -> None:
    sandbox = start()
    output.take()
    for number in range(20):
        answer(sandbox, {"number": number})
        assert output.take() == f"got {{'number': {number}}}\n"
    error(sandbox, {"do": "exit"})
    assert output.take() == "got {'do': 'exit'}\n"
    assert (tmp_path / "function.log").read_text().count("got ") == 21


def test_an_answer_to_another_event_is_refused(start: Callable[..., Sandbox]) -> None:
    sandbox = start()
    assert not sandbox.runtime_api.take("unknown", Outcome(b"{}", is_error=False))
    assert answer(sandbox, {})
    assert not sandbox.runtime_api.take("request-1", Outcome(b"{}", is_error=False))  # it has one
