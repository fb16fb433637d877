"""Row 11: a prompt longer than the model's context."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from tests.campaigns.faults.fault import Fault, is_refused
from tests.campaigns.faults.ingestion_faults import collection_for, ended, submit
from tests.campaigns.faults.load import Answer, Load
from tests.campaigns.faults.system import System
from tests.campaigns.faults.vendor_faults import VendorFault, request_number
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Behaviour, SmallContext

_PASSAGES = 12
_LABEL = re.compile(r"\[Context (\d+)\]")
_CITES_ALL = Reply(texts=tuple(f"Five days [Context {n}]. " for n in range(1, _PASSAGES + 1)))
_ALL, _HALF, _NONE = (SmallContext(tokens, _CITES_ALL) for tokens in (9_000, 1_500, 270))
"""Share of the chunks that fits in next to the question and the longest answer."""


class ContextOverflow(VendorFault):
    number = 11
    name = (
        "a prompt longer than the model's context: slightly for a third of the queries, far for another third"
    )
    client_sees = "an answer that cites only what was sent the second time, or 422"
    settings: ClassVar[Mapping[str, str]] = {"llm_fallbacks": '["anthropic"]'}

    def request(self, number: int) -> Mapping[str, Any]:
        return {"collection": "fault-11", "k": _PASSAGES, "max_tokens": 200}

    def behaviour(self, number: int, attempt: int) -> Behaviour:
        return (_ALL, _HALF, _NONE)[number // 2 % 3]

    @asynccontextmanager
    async def inject(self, system: System, load: Load) -> AsyncIterator[None]:
        collection = await collection_for(load.client, "fault-11")
        texts = (f"Refund {n} does take five days. " * 18 for n in range(_PASSAGES))
        documents = [{"source": f"fault-11/{n}", "text": text} for n, text in enumerate(texts)]
        await ended(load.client, await submit(load.client, collection, documents))
        system.other_vendor.requests.clear()  # from earlier rows
        async with super().inject(system, load):
            yield

    def wrong(self, answer: Answer) -> str:
        if self.behaviour(request_number(answer.question), 0) is _NONE:
            is_reported = (
                is_refused(answer, 422) and (answer.problem or {})["code"] == "context_length_exceeded"
            )
            return "" if is_reported else "not refused with 422 context_length_exceeded"
        return super().wrong(answer)

    async def audit(self, system: System, answers: Sequence[Answer]) -> list[str]:
        sent: dict[int, list[int]] = {}
        for request in system.surroundings.vendor.requests:
            labels = _LABEL.findall(json.dumps(request.body))
            sent.setdefault(request_number(request.body), []).append(max(map(int, labels)))
        found, shortened = [], 0
        for answer in answers:
            attempts = sent[request_number(answer.question)]
            shortened += answer.is_answer and attempts[-1] < attempts[0]
            if len(attempts) > 2:
                found.append(f"asked {len(attempts)} times: {answer.question[:24]!r}")
            if answer.is_answer and _cited(answer) != set(range(1, attempts[-1] + 1)):
                found.append(f"cites {_cited(answer)} of {attempts} passages: {answer.question[:24]!r}")
        if not shortened:
            found.append("no prompt was shortened")
        if system.other_vendor.requests:
            found.append("another vendor was asked")
        return found


def _cited(answer: Answer) -> set[int]:
    """Return the numbers of the chunks that an answer cites."""
    if not answer.streamed:
        return {citation["source_number"] for citation in answer.body["citations"]}
    return {data["source_number"] for name, data in answer.events if name == "citation"}


CONTEXT_FAULTS: tuple[type[Fault], ...] = (ContextOverflow,)
