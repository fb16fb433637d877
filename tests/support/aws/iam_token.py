"""A token of IAM as RDS checks it; written from the specification, with nothing of the AWS SDK.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from urllib.parse import parse_qsl, quote, urlsplit

_LONGEST_S = 900


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """Credentials that IAM has given out."""

    secret_key: str
    session_token: str | None = None


@dataclass(frozen=True, slots=True)
class IamToken:
    """What a token says."""

    address: str
    """host:port"""
    query: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> "IamToken":
        """From what a client sends as its password."""
        parts = urlsplit(f"https://{text}")
        return cls(parts.netloc, dict(parse_qsl(parts.query, keep_blank_values=True)))

    @property
    def access_key(self) -> str:
        """Whose credentials it was signed with."""
        return self.query.get("X-Amz-Credential", "").split("/")[0]

    def fault(self, *, address: str, user: str, region: str, keys: Mapping[str, AwsKeys]) -> str | None:
        """Why it does not let this role in; None when it does.

        Args:
            address: host:port of the endpoint that the client asked for.
            user: Role in the database.
            region: Of the endpoint.
            keys: Credentials by access key.
        """
        known = keys.get(self.access_key)
        scope = self.query.get("X-Amz-Credential", "").split("/")[1:]
        if known is None:
            return "signed with unknown credentials"
        if self.query.get("X-Amz-Security-Token") != known.session_token:
            return "signed with another session's token"
        if (self.address, self.query.get("Action"), self.query.get("DBUser")) != (address, "connect", user):
            return "signed for something else"
        if scope[1:] != [region, "rds-db", "aws4_request"] or self._age_s() is None:
            return "signed for another region, service or time"
        if self.query.get("X-Amz-Signature") != self._signature(known.secret_key, scope):
            return "signed wrongly"
        return None

    def _age_s(self) -> float | None:
        """Seconds since it was signed; None when it is not good now."""
        signed = datetime.strptime(self.query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        age = datetime.now(UTC) - signed
        longest = timedelta(seconds=min(int(self.query["X-Amz-Expires"]), _LONGEST_S))
        return age.total_seconds() if timedelta(seconds=-60) < age < longest else None

    def _signature(self, secret_key: str, scope: list[str]) -> str:
        pairs = sorted((name, value) for name, value in self.query.items() if name != "X-Amz-Signature")
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
        nothing = hashlib.sha256(b"").hexdigest()
        request = f"GET\n/\n{query}\nhost:{self.address}\n\nhost\n{nothing}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        signed = f"AWS4-HMAC-SHA256\n{self.query['X-Amz-Date']}\n{'/'.join(scope)}\n{digest}"
        key = reduce(_hmac, scope, f"AWS4{secret_key}".encode())
        return _hmac(key, signed).hex()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
