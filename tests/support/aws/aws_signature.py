"""Check the signature of a request as AWS does (Signature Version 4)."""

import hmac
import re

from aiohttp import web

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, "
    r"SignedHeaders=(?P<names>[^,]+), Signature=(?P<signature>[0-9a-f]{64})"
)


def is_signed(request: web.Request, data: bytes, *, secret: str, service: str) -> bool:
    """Return whether a request is unchanged and signed with this secret access key for this service.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html
    """
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    found = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
    if found is None or found["service"] != service:
        return False
    signed = {name: request.headers[name] for name in found["names"].split(";")}
    url = f"http://{request.host}{request.rel_url.raw_path_qs}"
    again = AWSRequest(method=request.method, url=url, data=data, headers=signed)
    again.context["timestamp"] = request.headers["X-Amz-Date"]
    again.params = dict(request.query)
    auth = SigV4Auth(Credentials(found["key"], secret), service, found["region"])
    expected = auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again)
    return hmac.compare_digest(str(expected), found["signature"])
