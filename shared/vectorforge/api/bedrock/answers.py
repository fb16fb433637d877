"""Answers of RetrieveAndGenerate, whole and as events; the text of both has no labels."""

from collections.abc import Iterator, Mapping

from vectorforge.api.bedrock.citations import CitedText, Structure
from vectorforge.api.bedrock.event_stream import MEDIA_TYPE, event_message, exception_message
from vectorforge.api.error_schemas import aws_error, aws_exception
from vectorforge.api.problems import problem_of
from vectorforge.api.streaming.sse import encode_json
from vectorforge.pipeline.types import (
    CitationEvent,
    DoneEvent,
    ErrorEvent,
    QueryEvent,
    QueryResult,
    SourcesEvent,
    TokenEvent,
)

SESSION_HEADER = "x-amzn-bedrock-knowledge-base-session-id"


def whole_answer(result: QueryResult, session_id: str) -> Structure:
    """Return a ``RetrieveAndGenerateResponse``."""
    cited = CitedText(result.retrieved_chunks[: len(result.sources)])
    cited.feed(result.answer)
    cited.finish()
    for citation in result.citations:
        cited.cite(citation)
    return {
        "sessionId": session_id,
        "citations": list(cited.parts(is_whole=True)),
        "output": {"text": cited.text},
        "guardrailAction": _guardrail_action(result),
    }


def _guardrail_action(result: QueryResult) -> str:
    return "INTERVENED" if result.finish_reason == "content_filter" else "NONE"


class AnswerEventEncoder:
    """Encodes an answer as ``RetrieveAndGenerateStreamResponseOutput``, which equals ``whole_answer``.

    Events: ``output``, ``citation`` after the text of its sentence, and last ``guardrail`` or an exception.

    Args:
        session_id: Sent as a header.
        request_id: Id of the request in the logs.
    """

    ping = event_message("output", '{"text": ""}')

    def __init__(self, session_id: str, *, request_id: str) -> None:
        self.request_id = request_id
        self.headers: Mapping[str, str] = {"Content-Type": MEDIA_TYPE, SESSION_HEADER: session_id}
        self._cited = CitedText()

    def encode(self, event: QueryEvent) -> bytes:
        """Encode an event as messages."""
        return b"".join(self._messages(event))

    def _messages(self, event: QueryEvent) -> Iterator[bytes]:
        match event:
            case SourcesEvent():
                self._cited = CitedText(event.retrieved_chunks[: len(event.sources)])
            case TokenEvent():
                yield from self._output(self._cited.feed(event.text))
                yield from map(_citation, self._cited.parts())
            case CitationEvent():
                self._cited.cite(event.citation)
                yield from map(_citation, self._cited.parts())
            case DoneEvent():
                yield from self._output(self._cited.finish())
                yield from map(_citation, self._cited.parts(is_whole=True))
                yield event_message("guardrail", encode_json({"action": _guardrail_action(event.result)}))
            case ErrorEvent():
                yield from self._output(self._cited.finish())
                problem = problem_of(event.error, request_id=self.request_id)
                name = aws_exception(problem)
                yield exception_message(name[0].lower() + name[1:], encode_json(aws_error(problem)))
            case _:
                pass

    def _output(self, text: str) -> Iterator[bytes]:
        if text:
            yield event_message("output", f'{{"text": {encode_json(text)}}}')


def _citation(part: Structure) -> bytes:
    """Encode a citation also in the deprecated member that older clients read."""
    return event_message("citation", encode_json({**part, "citation": part}))
