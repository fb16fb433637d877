"""The API as a buffered Lambda function.

Mangum gives the whole response back at once, which is right for JSON; tokens that must arrive one by one
need the streaming runtime. Its ``lifespan`` stays off: on, it would open and close the pools every time.
"""

from functools import cache
from typing import Any

from mangum import Mangum
from mangum.types import LambdaContext, LambdaEvent

from vectorforge.api.app import create_app
from vectorforge.bootstrap import Application
from vectorforge.config import VectorForgeConfig


@cache
def _adapter() -> Mangum:
    """One application for each process, made by the first event; its first request connects."""
    application = Application.build(VectorForgeConfig.from_environment())
    app = create_app(application, open_on_demand=True)
    return Mangum(
        app, lifespan="off", text_mime_types=["text/", "application/json", "application/problem+json"]
    )


def handler(event: LambdaEvent, context: LambdaContext) -> dict[str, Any]:
    """Answer an event of API Gateway (payload 1.0 and 2.0) or of a function URL."""
    return _adapter()(event, context)
