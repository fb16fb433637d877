"""A model that obeys its documents: the worst case of prompt injection."""

import json
import random
import re
from typing import Any
from urllib.parse import quote

from aiohttp import web

from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply

ORDER = re.compile(r"«(.*?)»", re.DOTALL)
"""Delimiters of a document's order to the model."""
SECRET = re.compile(r"CANARY[A-Z]*-[0-9a-f]{8,}")
"""Secrets that it looks for in the prompt."""


class ObedientOpenAI(FakeOpenAI):
    """Writes what the documents in its prompt order, with the secrets found there.

    ``{secrets}`` in an order becomes all secrets of the prompt, ``{prompt}`` the whole prompt, both fit for
    an address; ``{words}`` the secrets as words. The answer is streamed in pieces of random lengths.

    Args:
        seed: Seed of the pieces' lengths.
    """

    def __init__(self, *, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self._random = random.Random(seed)

    def check(self, request: web.Request, body: Any) -> None:
        """Check as OpenAI does, and derive the answer from the messages."""
        super().check(request, body)
        text = answer_to([message["content"] for message in body["messages"]])
        if body.get("response_format"):
            structured = {"answer": text, "examples": [text], "sources": re.findall(r"https?://\S+", text)}
            text = json.dumps({**structured, "confidence": "high"}, ensure_ascii=False)
        self.unscripted = Reply(texts=tuple(self._pieces(text)))

    def _pieces(self, text: str) -> list[str]:
        pieces: list[str] = []
        while text:
            length = self._random.choice((1, 2, 3, 5, 8, 40))
            pieces.append(text[:length])
            text = text[length:]
        return pieces


def answer_to(messages: list[str]) -> str:
    """Return the model's answer to these messages: plain words, then the ordered text."""
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
