"""Standard queues of SQS over its JSON protocol, fast enough for a hundred thousand messages.

https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-making-api-requests-json.html

moto is the reference for the meaning of boto3's calls; it handles a hundred messages per second, this one
some thousand.
"""

import asyncio
import hashlib
import heapq
import itertools
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self, TypeAlias

from aiohttp import web

_Answer: TypeAlias = dict[str, Any]
_MAX_MESSAGE_BYTES = 1_048_576
_REGION = "eu-central-1"
_LONGEST_POLL_S = 20


@dataclass(slots=True)
class _Message:
    body: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    sent_ms: int = field(default_factory=lambda: round(time.time() * 1000))
    visible_at: float = 0.0
    receives: int = 0
    handle: str = ""
    deleted: bool = False


class _Queue:
    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.visibility_s = int(attributes.get("VisibilityTimeout", "30"))
        redrive = json.loads(attributes.get("RedrivePolicy", "{}"))
        self.dead_letters = str(redrive.get("deadLetterTargetArn", "")).rpartition(":")[2]
        self.max_receives = int(redrive.get("maxReceiveCount", 0))
        self.arrived = asyncio.Event()
        self._heap: list[tuple[float, int, _Message]] = []
        self._numbers = itertools.count()
        self._by_handle: dict[str, _Message] = {}
        self._alive: set[str] = set()

    def put(self, message: _Message, *, delay_s: float = 0.0) -> None:
        message.visible_at = time.monotonic() + delay_s
        self._alive.add(message.id)
        heapq.heappush(self._heap, (message.visible_at, next(self._numbers), message))
        self.arrived.set()

    def take(self) -> _Message | None:
        """Return the next visible message and hide it."""
        now = time.monotonic()
        while self._heap and self._heap[0][0] <= now:
            at, _, message = heapq.heappop(self._heap)
            if message.deleted or at != message.visible_at:
                continue
            message.receives += 1
            message.handle = str(uuid.uuid4())
            self._by_handle[message.handle] = message
            self.hide(message, self.visibility_s)
            return message
        self.arrived.clear()
        return None

    def hide(self, message: _Message, seconds: float) -> None:
        message.visible_at = time.monotonic() + seconds
        heapq.heappush(self._heap, (message.visible_at, next(self._numbers), message))
        if seconds <= 0:
            self.arrived.set()

    def find(self, handle: str) -> _Message | None:
        return self._by_handle.get(handle)

    def delete(self, message: _Message) -> None:
        message.deleted = True
        self._alive.discard(message.id)
        self._by_handle.pop(message.handle, None)

    def counts(self) -> tuple[int, int]:
        now = time.monotonic()
        visible = {m.id for at, _, m in self._heap if at == m.visible_at and at <= now and not m.deleted}
        return len(visible), len(self._alive) - len(visible)


class FakeSqs:
    """Listens on 127.0.0.1 while it is an entered context manager.

    Args:
        duplicated: Share of messages that are enqueued twice ("at least once").
        random: Selects these messages.
        longest_hidden_s: Upper bound of the time for which a message stays hidden, which saves waiting.
    """

    def __init__(
        self,
        *,
        duplicated: float = 0.0,
        random: Random | None = None,
        longest_hidden_s: float = float("inf"),
    ) -> None:
        self.url = ""
        """Set once it listens."""
        self.duplicated = duplicated
        self.doubled = 0
        """Number of messages enqueued twice so far."""
        self._random = random or Random()
        self._longest_hidden_s = longest_hidden_s
        self._queues: dict[str, _Queue] = {}
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._operations: dict[str, Callable[[Any], Awaitable[_Answer]]] = {
            "CreateQueue": self._create,
            "GetQueueAttributes": self._attributes,
            "SendMessage": self._send,
            "SendMessageBatch": self._send_batch,
            "ReceiveMessage": self._receive,
            "DeleteMessage": self._delete,
            "DeleteMessageBatch": self._delete_batch,
            "ChangeMessageVisibility": self._change,
            "ChangeMessageVisibilityBatch": self._change_batch,
        }

    async def __aenter__(self) -> Self:
        await self.open_port()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_port()

    async def open_port(self) -> None:
        """Listen, at the same address as before if there was one; the queues retain their messages."""
        app = web.Application(client_max_size=16 * 1024 * 1024)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()
        self._port = int(self._runner.addresses[0][1])
        self.url = f"http://127.0.0.1:{self._port}"

    async def close_port(self) -> None:
        """Refuse connections from now on."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        serve = self._operations.get(operation)
        if serve is None:
            return _error("UnsupportedOperation", f"{operation} is not known here.")
        try:
            return web.json_response(
                await serve(await request.json()), content_type="application/x-amz-json-1.0"
            )
        except KeyError as exc:
            return _error("QueueDoesNotExist", f"There is no {exc}.")
        except ValueError as exc:
            return _error("InvalidParameterValue", str(exc))

    def _find(self, body: Any) -> _Queue:
        return self._queues[str(body["QueueUrl"]).rpartition("/")[2]]

    async def _create(self, body: Any) -> _Answer:
        name = body["QueueName"]
        self._queues[name] = _Queue(name, body.get("Attributes", {}))
        return {"QueueUrl": f"{self.url}/000000000000/{name}"}

    async def _attributes(self, body: Any) -> _Answer:
        queue = self._find(body)
        visible, hidden = queue.counts()
        return {
            "Attributes": {
                "QueueArn": f"arn:aws:sqs:{_REGION}:000000000000:{queue.name}",
                "VisibilityTimeout": str(queue.visibility_s),
                "ApproximateNumberOfMessages": str(visible),
                "ApproximateNumberOfMessagesNotVisible": str(hidden),
                "ApproximateNumberOfMessagesDelayed": "0",
            }
        }

    def _put(self, queue: _Queue, text: str) -> _Answer:
        if len(text.encode()) > _MAX_MESSAGE_BYTES:
            raise ValueError(f"One or more parameters are invalid: longer than {_MAX_MESSAGE_BYTES} bytes.")
        message = _Message(text)
        queue.put(message)
        if self.duplicated and self._random.random() < self.duplicated:
            self.doubled += 1
            queue.put(_Message(text, id=f"{message.id}-again"))
        return {"MessageId": message.id, "MD5OfMessageBody": _md5(text)}

    async def _send(self, body: Any) -> _Answer:
        return self._put(self._find(body), body["MessageBody"])

    async def _send_batch(self, body: Any) -> _Answer:
        queue = self._find(body)
        sent = [{"Id": one["Id"], **self._put(queue, one["MessageBody"])} for one in body["Entries"]]
        return {"Successful": sent, "Failed": []}

    async def _receive(self, body: Any) -> _Answer:
        queue, most = self._find(body), int(body.get("MaxNumberOfMessages", 1))
        give_up_at = time.monotonic() + min(int(body.get("WaitTimeSeconds", 0)), _LONGEST_POLL_S)
        while True:
            taken = list(itertools.islice(self._visible(queue), most))
            left_s = give_up_at - time.monotonic()
            if taken or left_s <= 0:
                return {"Messages": [_shown(one) for one in taken]}
            try:  # no event signals that a hidden message is visible again
                await asyncio.wait_for(queue.arrived.wait(), min(left_s, 0.2))
            except TimeoutError:
                continue

    def _visible(self, queue: _Queue) -> Iterator[_Message]:
        """Take visible messages; those received too often go to the dead-letter queue."""
        while (message := queue.take()) is not None:
            if queue.max_receives and message.receives > queue.max_receives:
                queue.delete(message)
                self._queues[queue.dead_letters].put(_Message(message.body))
                continue
            yield message

    async def _delete(self, body: Any) -> _Answer:
        queue = self._find(body)
        if (message := queue.find(body["ReceiptHandle"])) is not None:
            queue.delete(message)
        return {}

    async def _delete_batch(self, body: Any) -> _Answer:
        for one in body["Entries"]:
            await self._delete({"QueueUrl": body["QueueUrl"], **one})
        return {"Successful": [{"Id": one["Id"]} for one in body["Entries"]], "Failed": []}

    async def _change(self, body: Any) -> _Answer:
        queue = self._find(body)
        message = queue.find(body["ReceiptHandle"])
        if message is not None and not message.deleted:
            queue.hide(message, min(int(body["VisibilityTimeout"]), self._longest_hidden_s))
        return {}

    async def _change_batch(self, body: Any) -> _Answer:
        for one in body["Entries"]:
            await self._change({"QueueUrl": body["QueueUrl"], **one})
        return {"Successful": [{"Id": one["Id"]} for one in body["Entries"]], "Failed": []}


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _shown(message: _Message) -> _Answer:
    return {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "Body": message.body,
        "MD5OfBody": _md5(message.body),
        "Attributes": {
            "ApproximateReceiveCount": str(message.receives),
            "SentTimestamp": str(message.sent_ms),
            "ApproximateFirstReceiveTimestamp": str(message.sent_ms),
            "SenderId": "campaign",
        },
    }


def _error(code: str, message: str) -> web.Response:
    body = {"__type": f"com.amazonaws.sqs#{code}", "message": message}
    return _json(body, status=400)


def _json(body: _Answer, *, status: int = 200) -> web.Response:
    return web.json_response(body, status=status, content_type="application/x-amz-json-1.0")
