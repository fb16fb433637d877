"""Python client of the HTTP API, without the server's dependencies.

    from vectorforge.http_client import VectorForge

    with VectorForge("http://localhost:8000") as client:
        print(client.query("How are tenants isolated?").response)

``AsyncVectorForge`` has the same methods as coroutines. ``calls`` describes each request once, ``transport``
sends and repeats it; ``models``, ``stored_models`` and ``errors`` have its results. The guide is
docs/use/python-client.md. ``vectorforge.client`` is the library without HTTP.
"""

from vectorforge.http_client.client import AsyncVectorForge, VectorForge
from vectorforge.http_client.errors import ClientError, ResponseError, StreamInterruptedError
from vectorforge.http_client.models import AnswerEvent, Citation, Done, Sources, Token

__all__ = [
    "AnswerEvent",
    "AsyncVectorForge",
    "Citation",
    "ClientError",
    "Done",
    "ResponseError",
    "Sources",
    "StreamInterruptedError",
    "Token",
    "VectorForge",
]
