"""The query function: the HTTP API behind API Gateway or a function URL, streamed or buffered."""

import gc
import math
import os
import random
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from vectorforge.api.app import create_app, create_unconfigured_app
from vectorforge.api.routers import QUERY_ROUTERS
from vectorforge.aws.observability import FunctionTelemetry
from vectorforge.bootstrap import Application
from vectorforge.config import AwsSettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError, NotConfiguredError
from vectorforge.patterns import compile_patterns
from vectorforge.runtime import StreamingHandler, can_stream, event_loop, mounted, run_in_loop

if TYPE_CHECKING:
    from fastapi import FastAPI  # `vectorforge.api` must import it first

_LOOK_AGAIN_S = 30.0
_TEXT_TYPES = ["text/", "application/json", "application/problem+json"]
_NEEDS_RUNTIME = (
    "VECTORFORGE_RESPONSE_MODE is stream, and this runtime cannot stream. Set AWS_LAMBDA_EXEC_WRAPPER to "
    "/var/task/vectorforge/runtime/exec_wrapper (in a container image: start `python -m vectorforge.runtime "
    "functions.query.handler.handler`), or set VECTORFORGE_RESPONSE_MODE to buffered."
)


class QueryFunction:
    """Serve events of API Gateway (payload 1.0 and 2.0) and of function URLs with the app of ``api``.

    Everything is created in the init phase, which reads only stored provider keys and the tenants of API
    Gateway's keys from AWS. Their connections are closed before a snapshot (SnapStart), and they are re-read
    after it. The first request opens the database.

    Args:
        look_again_s: Seconds after which a function without a key looks for one again.

    Raises:
        ConfigurationError: Streaming is configured, and the runtime of the function does not support it.
    """

    def __init__(self, *, look_again_s: float = _LOOK_AGAIN_S) -> None:
        self._look_again_s = look_again_s
        # Only our runtime calls ``startup`` in the init phase; AWS's own imports the module, and no more.
        streams = os.environ.get("VECTORFORGE_RESPONSE_MODE") == "stream"
        if streams and "AWS_LAMBDA_RUNTIME_API" in os.environ and not can_stream():
            raise ConfigurationError(_NEEDS_RUNTIME)
        self._started: _Started | None = None

    def startup(self) -> "_Started":
        """Create the application once: called by our runtime in the init phase, else by the first event.

        Raises:
            ConfigurationError: A setting is missing or invalid, or the runtime does not support the
                configured streaming.
        """
        if self._started is None:
            gc.disable()  # as while the handler is imported
            try:
                self._started = self._start()
            finally:
                gc.enable()
        return self._started

    def shutdown(self) -> None:
        """Close what was opened; an event after that starts again."""
        started, self._started = self._started, None
        if started is not None:
            started.adapter.shutdown()

    def __call__(self, event: dict[str, Any], context: Any) -> Any:
        """Answer one event."""
        if self._started is not None and time.monotonic() > self._started.good_until:
            self.shutdown()
        started = self.startup()
        with started.telemetry.invocation(context):
            return started.adapter(event, context)

    def _start(self) -> "_Started":
        config = VectorForgeConfig.from_environment()
        telemetry = FunctionTelemetry("query", config)
        try:
            application = Application.build(config, metrics=telemetry.metrics, tracer=telemetry.tracer)
        except NotConfiguredError:
            # A key may come at any time, and this process may live for hours: it looks again.
            app = create_unconfigured_app(_not_configured(config.aws))
            adapter = _make_adapter(app, config.aws)
            return _Started(telemetry, adapter, time.monotonic() + self._look_again_s)
        return _Started(telemetry, _prepare(application))


def _prepare(application: Application) -> "StreamingHandler | _BufferedHandler":
    """Make the app, and load what its first requests need."""
    app = create_app(application, open_on_demand=True)
    adapter = _make_adapter(app, application.config.aws, application)
    run_in_loop(application.preload())
    if app.state.gateway_keys is not None:
        run_in_loop(app.state.gateway_keys.preload())
    initialization = os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE")
    if initialization in ("snap-start", "provisioned-concurrency"):  # the init phase may take its time
        app.state.routers.include_all()
        compile_patterns()
    else:
        app.state.routers.include(*QUERY_ROUTERS)
    if initialization == "snap-start":
        from snapshot_restore_py import register_after_restore, register_before_snapshot

        register_before_snapshot(application.release)
        register_after_restore(random.seed)  # or all copies of the snapshot would wait alike before a retry
    return adapter


@dataclass(frozen=True, slots=True)
class _Started:
    telemetry: FunctionTelemetry
    adapter: "StreamingHandler | _BufferedHandler"
    good_until: float = math.inf
    """On the monotonic clock; then it is made again."""


def _make_adapter(
    app: "FastAPI", aws: AwsSettings, application: Application | None = None
) -> "StreamingHandler | _BufferedHandler":
    mode = aws.response_mode or ("stream" if can_stream() else "buffered")
    if mode == "buffered":
        return _BufferedHandler(app, aws.base_path, application)
    if not can_stream():
        raise ConfigurationError(_NEEDS_RUNTIME)
    lifespan: Literal["auto", "off"] = "auto" if application is not None else "off"
    handler = StreamingHandler(app, lifespan=lifespan, api_gateway_base_path=aws.base_path)
    handler.startup()
    return handler


def _not_configured(aws: AwsSettings) -> NotConfiguredError:
    """Name the command that stores a key, for the secret of this function."""
    secret = aws.provider_secret_id or "<name of your secret>"
    name = re.sub(r"^arn:[^:]*:secretsmanager:[^:]*:[^:]*:secret:(.*)-[A-Za-z0-9]{6}$", r"\1", secret)
    return NotConfiguredError(
        "No embedding provider is configured. Run the command that `make deploy` prints for a key of OpenAI, "
        f"or `aws secretsmanager put-secret-value --secret-id {name} --secret-string file:///dev/stdin` with "
        'the input {"openai_api_key": "..."}. It takes effect within a minute.'
    )


class _BufferedHandler:
    """Mangum on one event loop for the life of the process, so that pools outlive an invocation."""

    def __init__(self, app: Any, base_path: str, application: Application | None = None) -> None:
        from mangum import Mangum

        self._application = application
        event_loop()  # Mangum uses the current one
        # Its lifespan would begin and end with every invocation.
        at_base: Any = mounted(app, base_path)
        self._adapter = Mangum(at_base, lifespan="off", text_mime_types=_TEXT_TYPES)

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        return self._adapter(event, context)

    def shutdown(self) -> None:
        if self._application is not None:
            run_in_loop(self._application.close())
