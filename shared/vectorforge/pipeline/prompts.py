"""Prompt templates, and how the context gets into them."""

import string

from vectorforge.errors import InvalidInputError
from vectorforge.tokens import estimate_tokens

__all__ = ["DEFAULT_SYSTEM_PROMPT", "RAG_QUERY_SYSTEM_PROMPT", "estimate_tokens", "render_template"]

DEFAULT_SYSTEM_PROMPT = """
You are a helpful assistant that answers questions based on the provided context.
Use ONLY the information in the context below to answer. If the answer cannot be
found in the context, say "I don't have enough information to answer that question."

Do not make up information. Always cite which source(s) you used.

Context:
{context}
"""

RAG_QUERY_SYSTEM_PROMPT = (
    "You are a helpful assistant. Use the following context to answer the user's question."
    "\n\nContext:\n{context}"
)

NO_RESULTS_ANSWER = "No relevant documents found for your query."

_PLACEHOLDER = "{context}"


def render_template(template: str, context: str) -> str:
    """Put the context in place of ``{context}``.

    Only that placeholder has a meaning, so a template may hold JSON or code. ``{{`` and ``}}`` are read as
    escaped braces when the whole template is a valid format string, as they always were.
    (``str.format`` itself would crash on other braces and let a template reach into objects:
    https://github.com/run-llama/llama_index/issues/14310.)

    Raises:
        InvalidInputError: The template has no ``{context}``.
    """
    if _PLACEHOLDER not in template:
        raise InvalidInputError("The system prompt must contain {context}.", field="system_prompt")
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        return template.replace(_PLACEHOLDER, context)
    if any(field not in (None, "context") or spec or conversion for _, field, spec, conversion in parts):
        return template.replace(_PLACEHOLDER, context)
    return "".join(text + (context if field else "") for text, field, _, _ in parts)
