"""A question that follows up ("And in winter?") rewritten by a model so that it can be searched for."""

import logging

from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError
from vectorforge.llm.types import LLMRequestConfig, Message, ProviderCapability
from vectorforge.pipeline.run import QueryRun

logger = logging.getLogger(__name__)

REWRITING_PROMPT = """\
You turn the last question of a conversation into one that can be understood without the conversation.
Replace words such as "it", "they" and "there" by what they stand for, and add what is left out. Keep the
language and the meaning of the question. Do not answer it. Reply with the question only."""

_TIMEOUT_S = 10.0
_MAX_TOKENS = 200
_MAX_CHARS = 2000
_MESSAGES = 6
"""Of the history that the model sees, the latest."""
_MESSAGE_CHARS = 1000


async def rewrite_question(run: QueryRun) -> str | None:
    """The question as it stands alone, in the words of the model that will answer.

    Args:
        run: With a history; its provider is asked once more, for at most ten seconds.

    Returns:
        None when there is no model, when it fails or says nothing usable, or when it changes nothing: then
        the question itself is searched for.
    """
    provider = run.provider
    if provider is None or ProviderCapability.EXTRACTIVE in provider.capabilities:
        return None
    request = LLMRequestConfig(model=run.model or "", temperature=0.0, max_tokens=_MAX_TOKENS)
    deadline = Deadline.after(min(_TIMEOUT_S, run.deadline.remaining_s() / 2))
    try:
        response = await provider.generate(_messages(run), request, deadline=deadline)
    except VectorForgeError as exc:
        logger.warning("The question of query %s was not rewritten: %s", run.request_id, exc.message)
        return None
    run.used_tokens += response.prompt_tokens + response.completion_tokens
    rewritten = " ".join(response.content.split()).strip("\"'“”„ ")
    if not rewritten or len(rewritten) > _MAX_CHARS or response.metadata.get("finish_reason") != "stop":
        logger.warning("The question of query %s was not rewritten: no usable text", run.request_id)
        return None
    return rewritten if rewritten != run.search_text else None


def _messages(run: QueryRun) -> list[Message]:
    said = [message for message in run.config.history if message.role != "system"][-_MESSAGES:]
    lines = [f"{message.role}: {message.content[:_MESSAGE_CHARS]}" for message in said]
    conversation = "\n".join(lines)
    return [
        {"role": "system", "content": REWRITING_PROMPT},
        {
            "role": "user",
            "content": f"Conversation:\n{conversation}\n\nLast question: {run.search_text}",
        },
    ]
