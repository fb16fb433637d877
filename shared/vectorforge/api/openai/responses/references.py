"""Item references: items of stored responses that the input of a later one names by id.

Vercel's AI SDK sends them for the items of earlier steps, unless ``store`` is false.
"""

import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from vectorforge.api.openai.labels import rewrite_labels
from vectorforge.api.openai.request_schemas import ContentPart
from vectorforge.api.openai.responses.requests import InputItem
from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.conversation_repo import ConversationMessage
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.exchange import ExchangeDetails

ITEM_REFERENCE: Final = "item_reference"
MAX_REFERENCES: Final = 100
"""Limit of one request; each may be a whole answer."""
_ID = re.compile(r"(msg|fc|fs)_([0-9a-f]{32})([0-9a-f]{32})?(?:_(\d{1,4}))?")


async def resolve_references(
    tenant: TenantServices, items: Sequence[InputItem], credential: str
) -> list[InputItem]:
    """Return the items with each reference replaced by the item that it names.

    Searches are no part of a conversation, so a reference to one is not looked up.

    Args:
        tenant: The caller's.
        items: Input of a request.
        credential: The caller's, whose responses may be referenced.

    Raises:
        InvalidInputError: There are too many, or an item is not stored with a response of this credential.
    """
    ids = {
        index: _ID.fullmatch(item.id or "") for index, item in enumerate(items) if item.type == ITEM_REFERENCE
    }
    if len(ids) > MAX_REFERENCES:
        raise InvalidInputError(f"`input` may have at most {MAX_REFERENCES} item references.", field="input")
    wanted = {(UUID(id_[3]), UUID(id_[2])) for id_ in ids.values() if id_ and id_[3] and id_[1] != "fs"}
    answers = await tenant.conversations.answers(list(wanted), credential=credential) if wanted else {}
    resolved = list(items)
    for index, id_ in ids.items():
        item = _item(id_, answers) if id_ else None
        if item is None:
            raise InvalidInputError(
                "This item is not stored with a response of yours. Items are stored with `store: true`; "
                "else send the item itself (AI SDK: `store: false`).",
                field=f"input.{index}.id",
            )
        resolved[index] = item
    return resolved


def _item(id_: re.Match[str], answers: dict[UUID, ConversationMessage]) -> InputItem | None:
    kind, query_id, _, place = id_.groups()
    if kind == "fs":
        return InputItem(type="file_search_call")
    answer = answers.get(UUID(query_id))
    if answer is None:
        return None
    if kind == "msg":
        text, _ = rewrite_labels(answer.content, ())  # as the client got it
        part = ContentPart.model_construct(type="output_text", text=text)  # checked with the other messages
        return InputItem(role="assistant", content=[part]) if answer.content and place is None else None
    details = ExchangeDetails.from_json(answer.details)
    calls = details.result.tool_calls if details else ()
    if place is None or int(place) >= len(calls):
        return None
    call = calls[int(place)]
    return InputItem(type="function_call", call_id=call.id, name=call.name, arguments=call.arguments)
