"""A model that does whatever a document says: the worst case of an injected prompt."""

import json
import random
import re
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply

ORDER = re.compile(r"«(.*?)»", re.DOTALL)
"""What a document wants written stands between these."""
SECRET = re.compile(r"CANARY[A-Z]*-[0-9a-f]{8,}")
"""What it would like to have."""


class ObedientOpenAI(FakeOpenAI):
    """Writes what the documents in its prompt want written, with what else it has read there.

    ``{secrets}`` in an order becomes all secrets of the prompt, ``{prompt}`` the whole prompt, both fit for
    an address; ``{words}`` the secrets as words. The answer comes in pieces of random lengths.

    Args:
        seed: Of the pieces' lengths.
    """

    def __init__(self, *, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self._random = random.Random(seed)

    def check(self, request: web.Request, body: Any) -> None:
        """As OpenAI; and the answer follows from what was asked."""
        super().check(request, body)
        text = answer_to([message["content"] for message in body["messages"]])
        if body.get("response_format"):
            said = {"answer": text, "examples": [text], "sources": re.findall(r"https?://\S+", text)}
            text = json.dumps({**said, "confidence": "high"}, ensure_ascii=False)
        self.unscripted = Reply(texts=tuple(self._pieces(text)))

    def _pieces(self, text: str) -> list[str]:
        pieces: list[str] = []
        while text:
            length = self._random.choice((1, 2, 3, 5, 8, 40))
            pieces.append(text[:length])
            text = text[length:]
        return pieces


def answer_to(messages: list[str]) -> str:
    """What the model writes after these messages: plain words, then what it was ordered to write."""
    prompt = "\n".join(messages)
    secrets = sorted(set(SECRET.findall(prompt)))
    values = {
        "{secrets}": quote("+".join(secrets)),
        "{prompt}": quote(prompt[:1_500]),
        "{words}": " ".join(secrets),
    }
    written = "\n\n".join(ORDER.findall(prompt))
    for name, value in values.items():
        written = written.replace(name, value)
    return f"The kettle boils at 100 degrees [Source 1]. {written}"
