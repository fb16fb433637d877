"""Prompts without the fence around their chunks."""

import json
import re
from typing import Any

from vectorforge.pipeline.prompts import FENCE, without_fence_number

_NONCE = r"(?P<nonce>[0-9a-f]{16})"


def _pattern() -> re.Pattern[str]:
    before, after = FENCE.split("{context}")
    opening = re.escape(before).replace(r"\{nonce\}", _NONCE, 1).replace(r"\{nonce\}", "(?P=nonce)")
    closing = re.escape(after).replace(r"\{nonce\}", "(?P=nonce)")
    return re.compile(rf"{opening}(?P<context>.*){closing}", re.DOTALL)


def unfenced(prompt: str) -> str:
    """Return the prompt with the bare context; it must have one fence, closed by its own number."""
    found = _pattern().search(prompt)
    assert found is not None, prompt
    assert prompt.count(found["nonce"]) == 3
    return prompt[: found.start()] + found["context"] + prompt[found.end() :]


def without_number(request: Any) -> Any:
    """Replace the number of the fence in a request by zeros: the rest is the same each time."""
    return json.loads(without_fence_number(json.dumps(request)))
