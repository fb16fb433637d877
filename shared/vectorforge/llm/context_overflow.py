"""Whether a vendor refuses a request because it is longer than the model's context, and by how much."""

import re
from dataclasses import dataclass

_COMPLAINT = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|(prompt|input) is too long|"
    r"too many (input )?tokens|input tokens? (count )?[^.]{0,40}\bexceed|"
    r"\bexceeds? (the )?(model's )?(maximum |available )?context (limit|length|size|window)",
    re.IGNORECASE,
)
"""OpenAI, and most servers of its API: code context_length_exceeded, "This model's maximum context length
is 8192 tokens. However, your messages resulted in 8227 tokens."
(https://github.com/crewAIInc/crewAI-examples, issue 121), "Your input exceeds the context window of this
model". Anthropic: "prompt is too long: 209353 tokens > 199999 maximum"
(https://github.com/entropy-research/Devon, issue 88), "input length and `max_tokens` exceed context limit:
90402 + 116650 > 204648" (https://github.com/stackblitz/bolt.new, issue 7414). Bedrock: the first of these
two, "Input is too long for requested model." (https://github.com/aaif-goose/goose, pull request 7504), "Too
many input tokens. Max input tokens: 8192, request input token count: 9000". Gemini: "The input token count
(1200000) exceeds the maximum number of tokens allowed (1048576)."
(https://github.com/arkavo-org/arkavo-edge, issue 371). llama.cpp: "the request exceeds the available
context size"."""

_NUMBER = r"(\d[\d,]{0,11})"
_LIMIT = re.compile(
    rf"context length (?:is|of) {_NUMBER}|> {_NUMBER}|limit of {_NUMBER}|tokens allowed \({_NUMBER}|"
    rf"max input tokens: {_NUMBER}|context size \({_NUMBER}",
    re.IGNORECASE,
)
_PROMPT = re.compile(
    rf"{_NUMBER} in (?:the messages|your prompt)|resulted in {_NUMBER}|has {_NUMBER} input tokens|"
    rf"too long: {_NUMBER}|context limit: {_NUMBER}|input token count:? \(?{_NUMBER}|"
    rf"request \({_NUMBER} tokens",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """What a vendor says of a request that is too long; None where it does not say."""

    prompt_tokens: int | None
    """Of the request, without room for the answer, as the vendor counts."""
    limit_tokens: int | None
    """What the model takes; for most with the answer."""


def find_overflow(said: str) -> Overflow | None:
    """What the text says of a request that is too long; None when it speaks of something else.

    Args:
        said: The text of an error of a refused request, which may quote it. A limit on tokens by time has
            another status.
    """
    if not _COMPLAINT.search(said):
        return None
    return Overflow(_first(_PROMPT, said), _first(_LIMIT, said))


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    return int(next(filter(None, found.groups())).replace(",", "")) or None
