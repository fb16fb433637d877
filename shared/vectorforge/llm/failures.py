"""Our errors for what a vendor did; a vendor's own text never gets into them.

Whether a vendor refuses a request because it is longer than the model's context, and by how much.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from vectorforge.errors import (
    LLMAuthenticationError,
    LLMContextOverflowError,
    LLMError,
    LLMRateLimitError,
    LLMRequestError,
    LLMStreamError,
    LLMTimeoutError,
)
from vectorforge.vendors.errors import (
    VendorConnectionError,
    VendorStatusError,
    VendorTimeoutError,
    parse_retry_after,
)

_REFUSALS = frozenset({400, 422})
"""Bad request, and what some servers of OpenAI's API say instead."""
_RETRYABLE_STATUSES = frozenset({408, 409})
"""Besides 429 and 5xx: request timeout and lock conflict, as both vendors' SDKs treat them."""


def error_for_status(
    provider: str,
    status: int,
    headers: Mapping[str, str] | None = None,
    *,
    said: str = "",
    now: datetime | None = None,
) -> LLMError:
    """The error for an HTTP status other than 2xx.

    Args:
        provider: Name shown in the text.
        status: What the vendor answered; 529 (Anthropic: overloaded) counts as 5xx.
        headers: Of the answer, names in lower case or case-insensitive; ``retry-after`` and
            ``retry-after-ms`` are read from it.
        said: The vendor's own text, only read for a complaint about the request's length.
        now: Timezone-aware; what a Retry-After date is compared to. Default: the clock.
    """
    retry_after_s = parse_retry_after(headers or {}, now=now)
    if status in _REFUSALS and (overflow := find_overflow(said)) is not None:
        return _too_long(provider, overflow.prompt_tokens, overflow.limit_tokens)
    if status in (401, 403):
        return LLMAuthenticationError(f"Invalid credentials for {provider}")
    if status == 429:
        error: LLMError = LLMRateLimitError(
            f"Provider {provider} is limiting requests", retry_after_s=retry_after_s
        )
    elif status == 408:
        error = timed_out(provider)
    elif status in _RETRYABLE_STATUSES or status >= 500:
        error = LLMError(f"Provider {provider} failed with status {status}")
        error.retryable = True
    else:
        error = LLMRequestError(f"Provider {provider} refused the request with status {status}")
    error.retry_after_s = retry_after_s
    return error


def error_for_exception(provider: str, exc: Exception) -> LLMError:
    """The error for whatever asking over ``vectorforge.vendors.http`` and reading the answer raised.

    Args:
        provider: Name shown in the text.
        exc: Also what ``response_body`` raises, and what reading an answer of another shape raises.
    """
    if isinstance(exc, VendorStatusError):
        return error_for_status(provider, exc.status, exc.headers, said=exc.text)
    if isinstance(exc, VendorTimeoutError):
        return timed_out(provider)
    if isinstance(exc, VendorConnectionError):
        return unreachable(provider)
    if isinstance(exc, ConnectionError):
        return broken_stream(provider)
    return unusable_answer(provider)


def timed_out(provider: str) -> LLMTimeoutError:
    """No answer, or no next token, in time."""
    return LLMTimeoutError(f"Provider {provider} timed out")


def _too_long(provider: str, prompt_tokens: int | None, limit_tokens: int | None) -> LLMContextOverflowError:
    known = [f"it has {prompt_tokens} tokens without the answer" if prompt_tokens else ""]
    known.append(f"the limit is {limit_tokens} tokens" if limit_tokens else "")
    facts = "; ".join(filter(None, known))
    return LLMContextOverflowError(
        f"The request is longer than the context of the model of provider {provider}"
        f"{f' ({facts})' if facts else ''}. Shorten the question, the instructions or the conversation, or "
        "lower max_tokens.",
        prompt_tokens=prompt_tokens,
        limit_tokens=limit_tokens,
    )


def unreachable(provider: str) -> LLMError:
    """No connection, or one that broke before the answer was there."""
    error = LLMError(f"Provider {provider} could not be reached")
    error.retryable = True
    return error


def broken_stream(provider: str) -> LLMStreamError:
    """A stream without its last event. Retryable until somebody has seen a token of it."""
    error = LLMStreamError(f"The answer of provider {provider} broke off before its end")
    error.retryable = True
    return error


def unusable_answer(provider: str) -> LLMError:
    """An answer that does not have the vendor's documented shape."""
    return LLMError(f"Provider {provider} sent an answer that cannot be read")


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
