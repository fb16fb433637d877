"""An identity provider on a real socket: it serves its public keys as a JWKS, and signs tokens."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.http.live_server import serve
from vectorforge.config import IdentitySettings

ISSUER = "https://idp.example"
AUDIENCE = "vectorforge"


@cache
def _keys() -> Mapping[str, Any]:
    """Generate the keys once: an RSA key takes 0.1 s."""
    return {
        "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }


class IdentityProvider:
    """Keys of every kind, by their ids: ``rsa``, ``ec``, ``ed``; ``answer`` can be replaced."""

    def __init__(self) -> None:
        self.url = ""
        self.fetched = 0
        """Number of requests for the keys."""
        self.private = dict(_keys())
        """Keys by id; the part before a "-" is the kind."""
        self.answer: Response | None = None
        """Response to return instead of the keys."""
        self.gate: asyncio.Event | None = None
        """Event that every response waits for."""
        self.asked = asyncio.Event()
        """Set on a request for the keys."""

    @property
    def settings(self) -> IdentitySettings:
        """Settings of a service that accepts its tokens."""
        return IdentitySettings(
            jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwt_jwks_url=f"{self.url}/jwks.json"
        )

    def public_keys(self) -> dict[str, Any]:
        """The JWKS."""
        encoders: dict[str, Any] = {"rsa": RSAAlgorithm, "ec": ECAlgorithm, "ed": OKPAlgorithm}
        keys = []
        for key_id, key in self.private.items():
            encoder = encoders.get(key_id.partition("-")[0], RSAAlgorithm)
            keys.append({**encoder.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig"})
        return {"keys": keys}

    def token(
        self,
        key_id: str = "rsa",
        algorithm: str = "RS256",
        *,
        headers: dict[str, Any] | None = None,
        key: Any = None,
        **claims: Any,
    ) -> str:
        """Sign a token that is valid except for the given claims; a claim that is None is omitted."""
        now = int(time.time())
        standard = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300}
        body = {name: value for name, value in {**standard, **claims}.items() if value is not None}
        return jwt.encode(
            body, key or self.private[key_id], algorithm=algorithm, headers={"kid": key_id, **(headers or {})}
        )


@asynccontextmanager
async def identity_provider() -> AsyncIterator[IdentityProvider]:
    """Serve a provider's keys until the end of the block."""
    provider = IdentityProvider()

    async def keys(_: Request) -> Response:
        provider.fetched += 1
        provider.asked.set()
        if provider.gate is not None:
            await provider.gate.wait()
        return provider.answer or Response(json.dumps(provider.public_keys()), media_type="application/json")

    async with serve(Starlette(routes=[Route("/jwks.json", keys)])) as url:
        provider.url = url
        yield provider
