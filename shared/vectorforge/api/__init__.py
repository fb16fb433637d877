"""HTTP API: request state, middleware, identity, streaming, and a folder of routers for each API surface."""

from typing import Any

from pydantic import BaseModel

# FastAPI's import builds validators for OpenAPI's models, a third of its time, which only OpenAPI documents
# need: https://docs.pydantic.dev/latest/api/config/#pydantic.config.ConfigDict.defer_build
_rebuild = BaseModel.__dict__["model_rebuild"]


def _rebuild_on_use(model: type[BaseModel], **options: Any) -> bool | None:
    """Skip FastAPI's own calls, which build three large models; pydantic's, on first use, have options."""
    return _rebuild.__func__(model, **options) if options else None  # type: ignore[no-any-return]


BaseModel.model_config["defer_build"] = True
BaseModel.model_rebuild = classmethod(_rebuild_on_use)  # type: ignore[assignment, method-assign]
try:
    import fastapi  # noqa: F401 - imported here first
finally:
    BaseModel.model_rebuild = _rebuild  # type: ignore[method-assign]
    del BaseModel.model_config["defer_build"]
