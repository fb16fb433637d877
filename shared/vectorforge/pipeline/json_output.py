"""Answers in JSON: checked against the schema of the request, repaired once, and free of labels and links.

Such an answer is not streamed by the model: its texts are cleaned one by one, which needs the whole object.
"""

import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

from vectorforge.deadline import off_event_loop
from vectorforge.errors import InvalidInputError, LLMError
from vectorforge.llm.registry import ModelTarget
from vectorforge.llm.tools import ToolCallDelta
from vectorforge.llm.types import LLMResponse, Message
from vectorforge.pipeline.citations.check import CitationChecker
from vectorforge.pipeline.citations.labels import replace_labels
from vectorforge.pipeline.context import ContextPayload
from vectorforge.pipeline.generation import (
    allowed_texts,
    finish,
    longest_answer,
    prompt,
    request_for,
    usage_of,
)
from vectorforge.pipeline.guardrails.links import without_foreign_links
from vectorforge.pipeline.output_format import cut_at_stop
from vectorforge.pipeline.query_log import logged_request
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import CitationEvent, JsonFormat, QueryEvent, TokenEvent, ToolCallEvent
from vectorforge.vendors.resilience import CircuitBreaker

MAX_SCHEMA_CHARS = 32_000
_REFUSED_KEYWORDS = frozenset({"patternProperties", "$dynamicRef", "$recursiveRef", "$dynamicAnchor"})
_UNCHECKED_KEYWORDS = ("pattern", "uniqueItems")
"""Left to the model: a caller's pattern could take forever."""
_NAMES = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names."""
_VALUES = frozenset({"const", "enum", "default", "examples"})
_MAX_REFERENCES = 20_000
_MAX_ERROR_CHARS = 500
_TOKEN_CHARS = 200
_REPAIR = (
    "This is not the JSON that was asked for: {error}\n\nAnswer with the corrected JSON and nothing else."
)


class InvalidJson(Exception):  # noqa: N818 - a finding about an answer
    """The answer is not JSON, or does not match the schema."""


def check_schema(schema: Mapping[str, Any], *, field: str) -> None:
    """Check a JSON Schema (draft 2020-12) of a caller.

    Args:
        schema: References lead within it.
        field: Its name in the request, for the error.

    Raises:
        InvalidInputError: It is too large, not a schema, or has an unsupported keyword.
    """
    from jsonschema import Draft202012Validator, SchemaError

    if len(json.dumps(schema)) > MAX_SCHEMA_CHARS:
        raise InvalidInputError(f"`{field}` may have at most {MAX_SCHEMA_CHARS:,} characters.", field=field)
    for keyword, value in _keywords(schema):
        if keyword in _REFUSED_KEYWORDS:
            raise InvalidInputError(f"`{keyword}` is not supported in `{field}`.", field=field)
        if keyword == "$ref" and not str(value).startswith("#"):
            raise InvalidInputError(f"`$ref` in `{field}` must begin with #.", field=field)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        raise InvalidInputError(f"`{field}` is not a JSON Schema: {exc.message[:200]}", field=field) from None


def _keywords(schema: Any, *, is_names: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the keywords of every part of a schema, with their values."""
    if isinstance(schema, Mapping):
        for key, part in schema.items():
            yield "" if is_names else key, part
            if is_names or key not in _VALUES:
                yield from _keywords(part, is_names=not is_names and key in _NAMES)
    elif isinstance(schema, list):
        for part in schema:
            yield from _keywords(part)


async def generate_json(
    run: QueryRun,
    payload: ContextPayload,
    target: ModelTarget,
    breaker: CircuitBreaker | None,
    *,
    limit_s: float | None = None,
) -> AsyncGenerator[QueryEvent, None]:
    """Call one model for an answer in JSON; arguments and events as ``generate_answer``.

    An answer that was cut off, refused by the model, or has tool calls is not checked.

    Raises:
        LLMError: The model failed, or its JSON is still invalid after a second call.
        DeadlineExceededError: The time ran out.
    """
    started, answer = time.perf_counter(), _Answer(run, payload)
    try:
        with breaker.call() if breaker is not None else nullcontext():
            raw = await answer.call(target, limit_s)
            text, error = await off_event_loop(len(raw), lambda: answer.read(raw))
            if error is not None:
                raw = await answer.call(target, limit_s, repairing=(raw, error))
                text, error = await off_event_loop(len(raw), lambda: answer.read(raw))
    finally:
        run.timings.generation_ms += (time.perf_counter() - started) * 1000
        if run.response is not None:
            run.note_cost(await usage_of(run, payload))
    if error is not None or run.response is None:
        raise LLMError(
            f"The answer of provider {target.provider.name} does not match the JSON asked for: {error}"
        )
    run.note_first_token()
    run.answer, run.response = text, replace(run.response, content=text)
    for place, call in enumerate(run.response.tool_calls):
        yield ToolCallEvent(ToolCallDelta(place, call.arguments, call.id, call.name))
    for start in range(0, len(text), _TOKEN_CHARS):
        yield TokenEvent(text[start : start + _TOKEN_CHARS])
    for citation in run.citations:
        yield CitationEvent(citation)
    yield await usage_of(run, payload)


class _Answer:
    """A model's answer in JSON, and the texts that it may name addresses of."""

    def __init__(self, run: QueryRun, payload: ContextPayload) -> None:
        self._run = run
        self._payload = payload
        assert run.config.response_format is not None  # noqa: S101 - else it is not called
        self._format = run.config.response_format
        self._allowed = cache(lambda: ["\n".join(allowed_texts(run, payload))])

    async def call(
        self, target: ModelTarget, limit_s: float | None, *, repairing: tuple[str, str] | None = None
    ) -> str:
        """Return the model's text; ``repairing`` has an earlier one and its error."""
        run, earlier = self._run, self._run.response
        messages: list[Message] = list(prompt(run, self._payload, target.provider))
        request = request_for(run, target.model)
        if repairing is None:
            run.request = logged_request(run, messages, request)
        else:
            raw, error = repairing
            messages.append({"role": "assistant", "content": raw or "(nothing)"})
            messages.append({"role": "user", "content": _REPAIR.format(error=error)})
        response = await target.provider.generate(
            messages,
            request,
            sources=self._payload.grounding(run.preset.context_format),
            deadline=run.deadline.within(limit_s),
        )
        finish(run, _with_tokens_of(response, earlier if repairing else None))
        return response.content[: longest_answer(run)]

    def read(self, raw: str) -> tuple[str, str | None]:
        """Return the text for the caller, and the error of its JSON."""
        run = self._run
        if run.config.stop:
            raw = cut_at_stop(raw, run.config.stop)
        if run.finish_reason in ("length", "content_filter") or (run.response and run.response.tool_calls):
            return without_foreign_links(replace_labels(raw), self._allowed), None
        try:
            value = _parsed(raw)
            checker = CitationChecker(run.query, self._payload.used)
            cleaned = self._cleaned(value, checker)
            check_json(cleaned, self._format)
        except RecursionError:
            return "", "it is nested too deeply."
        except InvalidJson as exc:
            return "", str(exc)[:_MAX_ERROR_CHARS]
        checker.finish()
        run.citations = [replace(citation, start=0, end=0) for citation in checker.citations]
        run.invalid_citations = checker.invalid
        return json.dumps(cleaned, ensure_ascii=False), None

    def _cleaned(self, value: Any, checker: CitationChecker) -> Any:
        """Return a value without foreign links, and without labels in text."""
        if isinstance(value, str):
            text = without_foreign_links(value, self._allowed)
            checker.feed(f"{text}\n\n")
            clean = replace_labels(text)
            return clean.lstrip(" ") if clean.strip() else text  # labels alone are the requested value
        if isinstance(value, list):
            return [self._cleaned(item, checker) for item in value]
        if isinstance(value, dict):
            return {name: self._cleaned(item, checker) for name, item in value.items()}
        return value


def _with_tokens_of(response: LLMResponse, earlier: LLMResponse | None) -> LLMResponse:
    if earlier is None:
        return response
    sums = {
        name: getattr(response, name) + getattr(earlier, name)
        for name in ("prompt_tokens", "completion_tokens", "total_tokens", "latency_ms")
    }
    return replace(response, **sums)


def _parsed(raw: str) -> Any:
    """Return the JSON of a text; tolerates a code fence around it."""
    text = raw.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.partition("\n")[2][:-3]
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except ValueError as exc:
        raise InvalidJson(f"it is not JSON ({exc})") from None


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def check_json(value: Any, wanted: JsonFormat) -> None:
    """Raise ``InvalidJson`` unless a value has the format."""
    if wanted.schema is None:
        if not isinstance(value, dict):
            raise InvalidJson("it is not an object.")
        return
    import jsonschema
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    validator = _validator_class()(wanted.schema, registry=Registry())
    try:
        error = next(iter(validator.iter_errors(value)), None)
    except (Unresolvable, jsonschema.exceptions.UnknownType) as exc:
        raise InvalidJson(f"its schema cannot be checked ({type(exc).__name__})") from None
    if error is not None:
        raise InvalidJson(f"{error.json_path}: {error.message}")


def _validator_class() -> Callable[..., Any]:
    """Return a validator that follows a limited number of references, and no pattern."""
    from jsonschema import Draft202012Validator, validators

    follow, left = Draft202012Validator.VALIDATORS["$ref"], _MAX_REFERENCES

    def limited(validator: Any, reference: Any, value: Any, schema: Any) -> Iterator[Any]:
        nonlocal left
        left -= 1
        if left < 0:
            raise InvalidJson("it has too many parts.")
        yield from follow(validator, reference, value, schema) or ()

    changed: dict[str, Any] = {"$ref": limited, **dict.fromkeys(_UNCHECKED_KEYWORDS, lambda *_: ())}
    extended: Callable[..., Any] = validators.extend(Draft202012Validator, changed)
    return extended
