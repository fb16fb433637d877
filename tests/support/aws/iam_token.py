"""An IAM token as RDS checks it; implemented from the specification, without the AWS SDK.

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
    """Credentials issued by IAM."""

    secret_key: str
    session_token: str | None = None


@dataclass(frozen=True, slots=True)
class IamToken:
    """Contents of a token."""

    address: str
    """host:port"""
    query: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> "IamToken":
        """Parse a token from the password that a client sends."""
        parts = urlsplit(f"https://{text}")
        return cls(parts.netloc, dict(parse_qsl(parts.query, keep_blank_values=True)))

    @property
    def access_key(self) -> str:
        """Access key of the credentials that signed the token."""
        return self.query.get("X-Amz-Credential", "").split("/")[0]

    def fault(self, *, address: str, user: str, region: str, keys: Mapping[str, AwsKeys]) -> str | None:
        """Return the reason to reject this role, or None.

        Args:
            address: host:port of the endpoint that the client connected to.
            user: Role in the database.
            region: Region of the endpoint.
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
        """Return the seconds since it was signed, or None if it is not valid now."""
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
