"""Our errors for what a vendor did; a vendor's own text never gets into them."""

from collections.abc import Mapping
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
from vectorforge.llm.context_overflow import find_overflow
from vectorforge.vendor_errors import (
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
    """The error for whatever asking over ``vectorforge.vendor_http`` and reading the answer raised.

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
