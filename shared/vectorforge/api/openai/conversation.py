"""Citations as chat completions know them.

OpenAI's messages as a question and the conversation before it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vectorforge.api.openai.chat_schemas import (
    MAX_TEXT_CHARS,
    Annotation,
    ClientMessage,
    ContentPart,
    UrlCitation,
)
from vectorforge.api.openai.labels import without_sources_footer
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.types import Citation, HistoryMessage, SourceCitation


def url_citations(
    citations: Iterable[Citation], sources: Sequence[SourceCitation], base_url: str
) -> list[Annotation]:
    """One annotation for each citation, in the order of the answer.

    ``url_citation`` is the only kind that clients take: some refuse an answer with another one. A source
    without a web address therefore gets that of its text on this server.

    Args:
        citations: With the offsets of ``[n]`` in the text that the client gets.
        sources: In the order of their labels.
        base_url: Of this server, as the client asked it; without a slash at the end.
    """
    return [_annotation(citation, sources[citation.source_number - 1], base_url) for citation in citations]


def _annotation(citation: Citation, source: SourceCitation, base_url: str) -> Annotation:
    cited = UrlCitation(
        start_index=citation.start,
        end_index=citation.end,
        title=source.title or source.document_source,
        url=source.source_url or f"{base_url}/v1/documents/{source.document_id}/text",
        source_number=citation.source_number,
        document_id=citation.document_id,
        chunk_id=citation.chunk_id,
        verdict=citation.verdict,
    )
    return Annotation(url_citation=cited)


_ROLES: dict[str, Literal["user", "assistant", "system"]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_TEXT_PARTS = ("text", "input_text", "output_text")


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is asked, and what was said before."""

    question: str
    history: tuple[HistoryMessage, ...] = ()
    """Oldest first. A client's ``system`` and ``developer`` messages are among them: they stand beside the
    prompt that holds the passages, and do not replace it."""

    @classmethod
    def of(cls, messages: Sequence[ClientMessage], *, field: str = "messages") -> "Conversation":
        """The last message of the user is the question, the others are what was said.

        Args:
            messages: Oldest first.
            field: How the request calls them, for errors.

        Raises:
            InvalidInputError: No message of the user holds text, an answer follows the last one, or a
                message holds what is no text: an image, audio, a file, a tool's result.
        """
        said = [_read(message, f"{field}.{index}") for index, message in enumerate(messages)]
        asked = next((i for i in range(len(said) - 1, -1, -1) if said[i].role != "system"), None)
        if asked is None or said[asked].role != "user":
            raise InvalidInputError("The last message must be the user's question.", field=field)
        question = said.pop(asked).content
        if not question.strip():
            raise InvalidInputError("The question is blank.", field=f"{field}.{asked}.content")
        return cls(question, tuple(message for message in said if message.content.strip()))


def _read(message: ClientMessage, field: str) -> HistoryMessage:
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidInputError(
            "Messages of the roles user, assistant, system and developer are read; tools are not supported.",
            field=f"{field}.role",
        )
    text = _text(message.content or (), f"{field}.content")
    return HistoryMessage(role, without_sources_footer(text) if role == "assistant" else text)


def _text(parts: Sequence[ContentPart], field: str) -> str:
    """The text of a message; its parts stand on lines of their own."""
    text = "\n".join(_part_text(part, f"{field}.{index}") for index, part in enumerate(parts))
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidInputError(f"{field} may hold {MAX_TEXT_CHARS} characters at most.", field=field)
    return text


def _part_text(part: ContentPart, field: str) -> str:
    if part.type == "refusal":
        return part.refusal or ""
    if part.type not in _TEXT_PARTS:
        raise InvalidInputError("Only text is read: no images, audio or files.", field=f"{field}.type")
    if part.text is None:
        raise InvalidInputError("A part of text has its text in `text`.", field=f"{field}.text")
    return part.text
