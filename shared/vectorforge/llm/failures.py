"""Failures of vendors: our error for each, and the parameter that a model refused.

A vendor's own text is read, but never copied into our errors.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from vectorforge.errors import (
    LLMAuthenticationError,
    LLMContextOverflowError,
    LLMError,
    LLMRateLimitError,
    LLMRequestError,
    LLMStreamError,
    LLMTimeoutError,
)
from vectorforge.patterns import pattern_of
from vectorforge.vendors.response import (
    VendorConnectionError,
    VendorStatusError,
    VendorTimeoutError,
    parse_retry_after,
)

Error = TypeVar("Error", bound=LLMError)


def error_for_status(
    provider: str,
    status: int,
    headers: Mapping[str, str] | None = None,
    *,
    text: str = "",
) -> LLMError:
    """Return the error for an HTTP status other than 2xx.

    Args:
        provider: Name shown in the error.
        status: Status of the response; 529 (Anthropic: overloaded) counts as 5xx.
        headers: Headers of the response, names in lower case or case-insensitive; ``retry-after`` and
            ``retry-after-ms`` are read.
        text: The vendor's own text, searched for a complaint about the request's length.
    """
    retry_after_s = parse_retry_after(headers or {})
    if status in (400, 422) and (overflow := find_overflow(text)) is not None:
        return _too_long(provider, overflow)
    if status in (401, 403):
        return LLMAuthenticationError(f"Invalid credentials for {provider}")
    if status == 429:
        error: LLMError = LLMRateLimitError(
            f"Provider {provider} is limiting requests", retry_after_s=retry_after_s
        )
    elif status == 408:
        error = timed_out(provider)
    elif status == 404:
        error = LLMRequestError(
            f"Provider {provider} has no such model, or its address is wrong (status 404)"
        )
    elif status == 409 or status >= 500:  # a lock conflict may pass, as both vendors' SDKs treat it
        error = _retryable(LLMError(f"Provider {provider} failed with status {status}"))
    else:
        error = LLMRequestError(f"Provider {provider} refused the request with status {status}")
    error.retry_after_s = retry_after_s
    return error


def error_for_exception(provider: str, exc: Exception) -> LLMError:
    """Return the error for an exception of ``vectorforge.vendors`` or of reading a response."""
    if isinstance(exc, VendorStatusError):
        return error_for_status(provider, exc.status, exc.headers, text=exc.text)
    if isinstance(exc, VendorTimeoutError):
        return timed_out(provider)
    if isinstance(exc, VendorConnectionError):
        return _retryable(LLMError(f"Provider {provider} could not be reached"))
    if isinstance(exc, ConnectionError):
        return broken_stream(provider)
    return LLMError(f"Provider {provider} sent an answer that cannot be read")


def _retryable(error: Error) -> Error:
    error.retryable = True
    return error


def timed_out(provider: str) -> LLMTimeoutError:
    """Return the error for an answer, or a next token, that did not arrive in time."""
    return LLMTimeoutError(f"Provider {provider} timed out")


def _too_long(provider: str, overflow: "Overflow") -> LLMContextOverflowError:
    prompt, limit = overflow.prompt_tokens, overflow.limit_tokens
    sizes = [f"it has {prompt} tokens without the answer"] if prompt else []
    sizes += [f"the limit is {limit} tokens"] if limit else []
    facts = f" ({'; '.join(sizes)})" if sizes else ""
    return LLMContextOverflowError(
        f"The request is longer than the context of the model of provider {provider}{facts}. Shorten the "
        "question, the instructions or the conversation, or lower max_tokens.",
        prompt_tokens=prompt,
        limit_tokens=limit,
    )


def broken_stream(provider: str) -> LLMStreamError:
    """Return the error for a stream without its last event; retryable before the first token."""
    return _retryable(LLMStreamError(f"The answer of provider {provider} broke off before its end"))


_COMPLAINT = pattern_of(
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
_LIMIT = pattern_of(
    rf"context length (?:is|of) {_NUMBER}|> {_NUMBER}|limit of {_NUMBER}|tokens allowed \({_NUMBER}|"
    rf"max input tokens: {_NUMBER}|context size \({_NUMBER}",
    re.IGNORECASE,
)
_PROMPT = pattern_of(
    rf"{_NUMBER} in (?:the messages|your prompt)|resulted in {_NUMBER}|has {_NUMBER} input tokens|"
    rf"too long: {_NUMBER}|context limit: {_NUMBER}|input token count:? \(?{_NUMBER}|"
    rf"request \({_NUMBER} tokens",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Overflow:
    """Sizes in a vendor's complaint about a request that is too long; None where not given."""

    prompt_tokens: int | None
    """Tokens of the request without the answer, as the vendor counts."""
    limit_tokens: int | None
    """Context length of the model; for most models it includes the answer."""


def find_overflow(text: str) -> Overflow | None:
    """Return the sizes in a complaint about a request that is too long; None for any other text.

    Args:
        text: Error text of a rejected request, which may quote it. A limit on tokens per minute has another
            status.
    """
    if not _COMPLAINT.search(text):
        return None
    return Overflow(_first(_PROMPT, text), _first(_LIMIT, text))


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    if match is None:
        return None
    return int(next(filter(None, match.groups())).replace(",", "")) or None


_ABOUT_THE_PARAMETER = pattern_of(
    r"unsupported|n[o']t support|deprecated|no longer|unknown|unrecogni[sz]ed|unexpected|extraneous|"
    r"(extra|additional) (inputs|fields|properties|parameters)|(cannot|can't|can not|may not)\b.{0,40}\bbe "
    r"(used|set|specified|combined)",
    re.IGNORECASE,
)
"""Texts and codes that reject a parameter as such. Complaints about a value must not match: the parameter
would be left out from then on, with any value."""
_ABOUT_THE_VALUE = pattern_of(r"invalid_(value|type)|(above_max|below_min)_(value|length)")
"""Error codes that reject a value, not the parameter."""


def named_parameter(
    candidates: Iterable[str], *, message: str, param: str | None = None, code: str | None = None
) -> str | None:
    """Return the first of ``candidates`` that the model refuses with any value.

    Args:
        candidates: Parameters that may be left out.
        message: The vendor's text; searched only when the vendor names no ``param``.
        param: Parameter named by the vendor.
        code: The vendor's error code.
    """
    if code and _ABOUT_THE_VALUE.search(code):
        return None
    if not _ABOUT_THE_PARAMETER.search(f"{code} {message}"):
        return None
    for name in candidates:
        if name == param or (not param and re.search(rf"\b{re.escape(name)}\b", message)):
            return name
    return None
