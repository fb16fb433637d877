"""What OpenAI's clients may ask for and nobody here can do; what would not change the answer is ignored."""

from collections.abc import Callable, Mapping
from typing import Any

from vectorforge.api.schemas.openai_chat import ChatCompletionRequest
from vectorforge.errors import InvalidInputError

_NO_TOOLS = "This server answers from documents and calls no tools; leave it out, or use auto or none."


def _forces_a_tool(choice: Any) -> bool:
    return choice not in (None, "auto", "none")


def _is_structured(response_format: Any) -> bool:
    return response_format is not None and response_format != {"type": "text"}


_REFUSED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "n": (lambda n: n not in (None, 1), "There is one answer to a question; n must be 1."),
    "tool_choice": (_forces_a_tool, _NO_TOOLS),
    "function_call": (_forces_a_tool, _NO_TOOLS),
    "modalities": (lambda kinds: bool(kinds) and kinds != ["text"], "Answers are text only."),
    "audio": (bool, "Answers are text only."),
    "logprobs": (bool, "Log probabilities are not known here."),
    "top_logprobs": (bool, "Log probabilities are not known here."),
    "logit_bias": (bool, "Tokens cannot be biased here."),
    "response_format": (_is_structured, "Answers are text with citations; other formats are not supported."),
    "stop": (bool, "Stop sequences are not supported."),
    "web_search_options": (bool, "This server searches its own documents only."),
}


def refuse_impossible(body: ChatCompletionRequest) -> None:
    """Hold a request to what can be done.

    Raises:
        InvalidInputError: It asks for what would have to change the answer and cannot; names the field.
    """
    for field, (is_refused, reason) in _REFUSED.items():
        if is_refused(getattr(body, field)):
            raise InvalidInputError(reason, field=field)
