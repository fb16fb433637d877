"""The bucket for query logs that are larger than an SQS message."""

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.query_log_record import (
    MAX_RECORD_BYTES,
    Fields,
    QueryLogPointer,
    QueryLogRecord,
    cut_to,
    parse_message,
    pointer_fields,
    to_json,
)
from vectorforge.errors import InvalidInputError, NotFoundError, ObjectStoreError

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


class QueryLogOverflow:
    """Puts records into the bucket and gets them back. Objects are never deleted: a lifecycle rule does that.

    Texts are taken out of them once the table has them, where they are erased and have their retention.

    Args:
        clients: Where the S3 client comes from.
        bucket: Its name. A message never says it: whoever can send one must not choose what is read.
    """

    def __init__(self, clients: AwsClients, bucket: str) -> None:
        self._clients = clients
        self._bucket = bucket

    def put(self, record: Fields) -> str:
        """Store a record, cut to 8 MiB; the message that points to it.

        Raises:
            Exception: An error of botocore.
        """
        pointer = pointer_fields(record)
        self._clients.get("s3").put_object(
            Bucket=self._bucket,
            Key=pointer["key"],
            Body=cut_to(record, MAX_RECORD_BYTES).encode("ascii"),
            ContentType="application/json",
        )
        return to_json(pointer)

    def get(self, pointer: QueryLogPointer) -> tuple[QueryLogRecord, int]:
        """The record that a message points to, and its size in bytes.

        Raises:
            NotFoundError: The bucket answers, but does not give this object (now).
            ObjectStoreError: The bucket does not answer, or answers that it cannot.
            ConfigurationError: As ``AwsClients.get``.
            InvalidInputError: It is not the record that the message announced.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._clients.get("s3").get_object(Bucket=self._bucket, Key=pointer.key)
            body = answer["Body"].read(MAX_RECORD_BYTES + 1)
            answer["Body"].close()
        except ClientError as exc:
            text = f"The overflow object cannot be read ({exc.response['Error'].get('Code')})."
            status = exc.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR:
                raise ObjectStoreError(text) from exc
            raise NotFoundError(text) from exc
        except BotoCoreError as exc:
            raise ObjectStoreError(f"The overflow bucket does not answer ({type(exc).__name__}).") from exc
        if len(body) > MAX_RECORD_BYTES:
            raise InvalidInputError(f"The overflow object is larger than {MAX_RECORD_BYTES:,} bytes.")
        record = parse_message(body)
        if not isinstance(record, QueryLogRecord) or (record.tenant_id, record.id) != (
            pointer.tenant_id,
            pointer.id,
        ):
            raise InvalidInputError("The overflow object is not the record that the message points to.")
        return record, len(body)

    def empty(self, pointer: QueryLogPointer, record: QueryLogRecord) -> None:
        """Put a record that was stored in place of itself, without question and answer.

        It stays readable: a message that comes twice still finds its record.

        Raises:
            ObjectStoreError: The bucket does not answer, or refuses; the texts may be there still.
            ConfigurationError: As ``AwsClients.get``.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        emptied = record.model_copy(update={"query_text": "", "generated_response": ""})
        try:
            self._clients.get("s3").put_object(
                Bucket=self._bucket,
                Key=pointer.key,
                Body=to_json(emptied.model_dump(mode="json")).encode("ascii"),
                ContentType="application/json",
            )
        except (ClientError, BotoCoreError) as exc:
            raise ObjectStoreError(f"The overflow object cannot be emptied ({type(exc).__name__}).") from exc
