"""Pre-signed forms: a client without AWS credentials may write one object, for some minutes.

A form (POST) and no URL (PUT), because only a form's policy can bound the size of what is written.
https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTConstructPolicy.html
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from vectorforge.aws.clients import AwsClients
from vectorforge.errors import ConfigurationError

EXPIRY_S = 900
"""For so long a form can be used, any number of times; less when the credentials that sign it end sooner."""


@dataclass(frozen=True, slots=True)
class UploadForm:
    """What a client posts, as multipart/form-data: the fields, then the part ``file``."""

    url: str
    fields: Mapping[str, str]
    expires_at: datetime


class UploadForms:
    """Signs forms, without asking AWS anything.

    Args:
        clients: Where the S3 client comes from. Its role needs ``s3:PutObject`` on the bucket's objects.
        bucket: Where clients write.
    """

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self.bucket = bucket

    async def sign(
        self, key: str, *, min_bytes: int, max_bytes: int, media_type: str | None = None
    ) -> UploadForm:
        """A form for one object.

        S3 refuses every field that the form does not hold, so that a client chooses neither another key nor
        access rights, storage class or encryption (which is the bucket's).

        Args:
            key: Where the object goes; it must not hold ``${filename}``, which S3 would replace.
            min_bytes: Of the file.
            max_bytes: Of the file.
            media_type: The object's; None leaves it open, and S3 notes ``binary/octet-stream``.

        Raises:
            ConfigurationError: There are no credentials, or as ``AwsClients.get``.
        """
        fields = {"Content-Type": media_type} if media_type else {}
        conditions: list[Any] = [dict([field]) for field in fields.items()]
        conditions.append(["content-length-range", min_bytes, max_bytes])
        expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=EXPIRY_S)
        # In a thread: credentials may have to be fetched anew.
        signed = await asyncio.to_thread(self._sign, key, fields, conditions)
        return UploadForm(signed["url"], signed["fields"], expires_at)

    def _sign(self, key: str, fields: dict[str, str], conditions: list[Any]) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError

        s3 = self._clients.get("s3")
        try:
            signed: dict[str, Any] = s3.generate_presigned_post(
                self.bucket, key, Fields=fields, Conditions=conditions, ExpiresIn=EXPIRY_S
            )
        except (BotoCoreError, AttributeError) as exc:  # the latter is how botocore misses credentials here
            raise ConfigurationError(
                f"Uploads cannot be signed ({type(exc).__name__}); are there AWS credentials?"
            ) from exc
        return signed
