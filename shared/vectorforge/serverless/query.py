"""The query function: the HTTP API behind API Gateway or a function URL, streamed or buffered."""

import os
import random
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import FastAPI

from vectorforge.api.app import create_app
from vectorforge.api.doors import QUESTION_DOORS, Doors
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig
from vectorforge.errors import ConfigurationError
from vectorforge.runtime import StreamingHandler, can_stream, event_loop, mounted, run_in_loop
from vectorforge.serverless.telemetry import FunctionTelemetry

_TEXT_TYPES = ["text/", "application/json", "application/problem+json"]
_NEEDS_RUNTIME = (
    "VECTORFORGE_RESPONSE_MODE is stream, and this runtime cannot stream. Set AWS_LAMBDA_EXEC_WRAPPER to "
    "/var/task/vectorforge/runtime/exec_wrapper (in a container image: start `python -m vectorforge.runtime "
    "functions.query.handler.handler`), or set VECTORFORGE_RESPONSE_MODE to buffered."
)


class QueryFunction:
    """Answers events of API Gateway (payload 1.0 and 2.0) and of function URLs with the app of ``api``.

    Everything is made in the init phase. Only stored keys of providers are read there, from AWS; their
    connections are closed before a snapshot (SnapStart), which must hold none, and they are read again after
    it. The first request opens the database.

    Raises:
        ConfigurationError: Answers are to be streamed, and the function was started by a runtime that cannot.
    """

    def __init__(self) -> None:
        # Only our runtime calls ``startup`` in the init phase; AWS's own imports the module, and no more.
        streams = os.environ.get("VECTORFORGE_RESPONSE_MODE") == "stream"
        if streams and "AWS_LAMBDA_RUNTIME_API" in os.environ and not can_stream():
            raise ConfigurationError(_NEEDS_RUNTIME)
        self._started: _Started | None = None

    def startup(self) -> None:
        """Make the application, once: called by our runtime in the init phase, else by the first event.

        Raises:
            ConfigurationError: A setting is missing or wrong, or answers are to be streamed by a runtime that
                cannot.
        """
        self._start()

    def shutdown(self) -> None:
        """Close what was opened; an event after that starts again."""
        started, self._started = self._started, None
        if started is not None:
            started.adapter.shutdown()

    def __call__(self, event: dict[str, Any], context: Any) -> Any:
        """Answer one event."""
        started = self._start()
        with started.telemetry.invocation(context):
            return started.adapter(event, context)

    def _start(self) -> "_Started":
        if self._started is None:
            config = VectorForgeConfig.from_environment()
            telemetry = FunctionTelemetry("query", config)
            application = Application.build(config, metrics=telemetry.metrics, tracer=telemetry.tracer)
            app = create_app(application, open_on_demand=True)
            adapter = _make_adapter(app, application)
            run_in_loop(application.preload())
            _open_doors(app.state.doors)
            if os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start":
                _prepare_for_snapshot(application)
            self._started = _Started(telemetry, adapter)
        return self._started


def _open_doors(doors: Doors) -> None:
    """All of them where somebody else waits for the start, else those that questions come through."""
    if os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") in ("snap-start", "provisioned-concurrency"):
        doors.open_all()
    else:
        doors.open(*QUESTION_DOORS)


def _prepare_for_snapshot(application: Application) -> None:
    from snapshot_restore_py import register_after_restore, register_before_snapshot

    register_before_snapshot(application.release)
    register_after_restore(random.seed)  # or all copies of the snapshot would wait alike before a retry


class _Adapter(Protocol):
    """Runs the app for an event."""

    def __call__(self, event: dict[str, Any], context: Any) -> Any: ...

    def shutdown(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Started:
    telemetry: FunctionTelemetry
    adapter: _Adapter


def _make_adapter(app: FastAPI, application: Application) -> _Adapter:
    if application.config.aws.response_mode == "buffered":
        return _BufferedHandler(app, application)
    if not can_stream():
        raise ConfigurationError(_NEEDS_RUNTIME)
    handler = StreamingHandler(app, api_gateway_base_path=application.config.aws.base_path)
    handler.startup()
    return handler


class _BufferedHandler:
    """Mangum on one event loop for the life of the process, so that pools outlive an invocation."""

    def __init__(self, app: Any, application: Application) -> None:
        from mangum import Mangum

        self._application = application
        event_loop()  # Mangum takes the current one
        # Its lifespan would begin and end with every invocation.
        at_base: Any = mounted(app, application.config.aws.base_path)
        self._adapter = Mangum(at_base, lifespan="off", text_mime_types=_TEXT_TYPES)

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        return self._adapter(event, context)

    def shutdown(self) -> None:
        run_in_loop(self._application.close())
