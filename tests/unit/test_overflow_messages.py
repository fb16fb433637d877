"""Vendors' messages about a prompt that is longer than the model's context."""

import pytest

from vectorforge.errors import LLMContextOverflowError, LLMRequestError
from vectorforge.llm.failures import error_for_status, find_overflow

OPENAI = "This model's maximum context length is"
VENDORS_WORDS = {
    f"{OPENAI} 8192 tokens. However, your messages resulted in 8227 tokens. Please reduce the": (8227, 8192),
    f"{OPENAI} 4097 tokens. However, you requested 4268 tokens (4012 in the messages, 256 in": (4012, 4097),
    f"'max_tokens' is too large: 9. {OPENAI} 4096 tokens and your request has 4095 input tokens": (
        4095,
        4096,
    ),
    "{'error': {'message': 'Too long', 'code': 'context_length_exceeded'}}": (None, None),
    "Your input exceeds the context window of this model. Please adjust your input.": (None, None),
    "prompt is too long: 209353 tokens > 199999 maximum": (209353, 199999),
    "The model returned the following errors: prompt is too long: 2049 tokens > 2000 maximum": (2049, 2000),
    "input length and `max_tokens` exceed context limit: 90402 + 116650 > 204648, decrease": (90402, 204648),
    "Input is too long for requested model.": (None, None),
    "Too many input tokens. Max input tokens: 8192, request input token count: 9,000 ": (9000, 8192),
    "The input token count (120) exceeds the maximum number of tokens allowed (104).": (120, 104),
    "The input token count exceeds the maximum number of tokens allowed (1048576).": (None, 1048576),
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length.": (None, None),
    "request (9000 tokens) exceeds the available context size (4096 tokens), try": (9000, 4096),
}
"""For their sources, see llm/failures.py."""


# Fault 11
@pytest.mark.parametrize("vendor_message", VENDORS_WORDS)
def test_vendor_overflow_messages_raise_context_overflow_error(vendor_message: str) -> None:
    found = find_overflow(vendor_message)
    assert found is not None
    assert (found.prompt_tokens, found.limit_tokens) == VENDORS_WORDS[vendor_message]
    for status in (400, 422):
        error = error_for_status("p", status, text=vendor_message)
        assert isinstance(error, LLMContextOverflowError)
        assert (error.retryable, error.is_fault, error.code) == (False, False, "context_length_exceeded")
        assert vendor_message not in error.message
        assert all(str(number) in error.message for number in VENDORS_WORDS[vendor_message] if number)


@pytest.mark.parametrize(
    ("status", "vendor_message"),
    [
        (400, "max_tokens is too large: 50000. This model supports at most 16384 completion tokens."),
        (400, "Invalid 'messages': array too long. Expected an array with maximum length 2048."),
        (400, "temperature: range: 0..1"),
        (400, ""),
        (429, "Too many tokens, please wait before trying again."),  # a limit on tokens by time
        (413, "Request too large for model on tokens per minute (TPM): Limit 6000, Requested 8000"),
        (500, "prompt is too long: 9 tokens > 8 maximum"),
    ],
)
def test_other_vendor_messages_raise_no_context_overflow_error(status: int, vendor_message: str) -> None:
    assert not isinstance(error_for_status("p", status, text=vendor_message), LLMContextOverflowError)


def test_overflow_error_is_a_request_error() -> None:
    assert issubclass(LLMContextOverflowError, LLMRequestError)
