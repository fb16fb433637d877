"""What a request says of itself: its key, and what it is told apart by from another under the same key."""

import hashlib
import re

from starlette.datastructures import Headers

from vectorforge.errors import InvalidInputError

HEADER = "Idempotency-Key"
MAX_CHARS = 255
_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_CHARS}}}")


def key_of(headers: Headers) -> bytes:
    """SHA-256 of the request's key.

    Raises:
        InvalidInputError: There are several, or it is empty, too long or not visible ASCII.
    """
    given = headers.getlist(HEADER)
    if len(given) != 1 or not _KEY.fullmatch(given[0]):
        raise InvalidInputError(
            f"{HEADER} must be given once, with 1 to {MAX_CHARS} visible ASCII characters.", field=HEADER
        )
    return hashlib.sha256(given[0].encode("ascii")).digest()


def fingerprint_of(method: str, path: str, body: bytes) -> bytes:
    """SHA-256 of a request, 32 bytes.

    Args:
        method: Has no blank.
        path: Without where the app is mounted; has no line break.
        body: As it came.
    """
    return hashlib.sha256(f"{method} {path}\n".encode() + body).digest()
