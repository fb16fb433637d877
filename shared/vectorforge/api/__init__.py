"""HTTP API: request state, middleware, identity, streaming, and a folder of routers for each API surface."""

from pydantic import BaseModel

# FastAPI's import builds validators for OpenAPI's models, a quarter of its time, which only OpenAPI documents
# need: https://docs.pydantic.dev/latest/api/config/#pydantic.config.ConfigDict.defer_build
BaseModel.model_config["defer_build"] = True
try:
    import fastapi  # noqa: F401 - imported here first
finally:
    del BaseModel.model_config["defer_build"]
