"""The operations of the OpenAPI document as HTML: the part of the API explorer that needs no script."""

import json
import re
from collections.abc import Iterator
from html import escape
from typing import Any

Schema = dict[str, Any]

_JSON = "application/json"
_FIELDS_DEPTH = 3
"""Levels of nested fields that a list shows."""


class Explorer:
    """Draws the operations of an OpenAPI document."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._schemas: Schema = document["components"]["schemas"]

    def parts(self) -> tuple[str, str]:
        """Return the links to the groups, and the groups with a form for each operation."""
        operations = [
            (about["tags"][0], self._operation(verb.upper(), path, about))
            for path, verbs in self._document["paths"].items()
            for verb, about in verbs.items()
        ]
        links, groups = [], []
        for tag in self._document["tags"]:
            members = "\n".join(html for name, html in operations if name == tag["name"])
            if not members:
                continue
            anchor = f"group-{tag['name'].replace(' ', '-')}"
            title = escape(tag.get("x-displayName", tag["name"]))
            links.append(f'<a href="#{anchor}">{title}</a>')
            groups.append(
                f'<section id="{anchor}" aria-labelledby="{anchor}-title">'
                f'<h2 id="{anchor}-title">{title}</h2>'
                f'<p class="note">{escape(tag.get("description", ""))}</p>\n{members}\n</section>'
            )
        return "\n".join(links), "\n".join(groups)

    def _operation(self, method: str, path: str, about: Schema) -> str:
        text = about.get("description") or about.get("summary", "")
        first, *rest = re.split(r"(?<=\.)\s", text, maxsplit=1)
        name, scope = f"{method} {path}", about.get("x-required-scope")
        kind = "danger" if method == "DELETE" else "solid"
        return (
            f'<details class="operation" id="{escape(name)}" data-group="{escape(about["tags"][0])}">'
            f'<summary><span class="method {method.lower()}">{method}</span>'
            f'<code class="path">{escape(path)}</code>'
            f'<span class="what">{_prose(first)}</span></summary><div class="inside">'
            + "".join(f"<p>{_prose(more)}</p>" for more in rest)
            + (
                f'<p class="note">Needs a key with the scope <code>{escape(scope)}</code>.</p>'
                if scope
                else ""
            )
            + f'<form data-method="{method}" data-path="{escape(path)}">'
            + "".join(map(self._parameter, about.get("parameters", ())))
            + self._body(about)
            + f'<div class="actions"><button class="button {kind}" type="submit">Send {method}</button>'
            + '<button class="button" type="button" hidden>Stop</button></div></form>'
            + _folded("Responses", f'<ul class="fields">{"".join(self._responses(about))}</ul>')
            + "</div></details>"
        )

    def _parameter(self, parameter: Schema) -> str:
        schema, place = self._resolved(parameter.get("schema", {})), parameter["in"]
        required = parameter.get("required", False)
        name, example = escape(parameter["name"]), parameter.get("example", "")
        options = schema.get("enum") or ([True, False] if schema.get("type") == "boolean" else None)
        if options:
            chosen = "".join(f"<option>{escape(_text(value))}</option>" for value in ["", *options])
            field = f'<select name="{name}" data-in="{place}">{chosen}</select>'
        else:
            field = (
                f'<input name="{name}" data-in="{place}" value="{escape(str(example))}"'
                f' autocomplete="off" spellcheck="false"{" required" if required else ""}>'
            )
        facts = ", ".join(
            filter(None, [f" in {place}", "required" if required else "", self._limits(schema)])
        )
        note = _prose(parameter.get("description") or schema.get("description", ""))
        return (
            f'<label><span><code>{name}</code>{facts}</span>{field}<span class="note">{note}</span></label>'
        )

    def _body(self, about: Schema) -> str:
        media = about.get("requestBody", {}).get("content", {}).get(_JSON)
        if not media:
            return ""
        examples = list(media.get("examples", {}).values()) or [{"summary": "", "value": {}}]
        bodies = [json.dumps(one["value"], indent=2, ensure_ascii=False) for one in examples]
        options = "".join(
            f'<option value="{escape(body)}">{escape(one["summary"])}</option>'
            for one, body in zip(examples, bodies, strict=True)
        )
        return (
            f'<label class="whole">Example<select class="examples">{options}</select></label>'
            '<label class="whole">Body, JSON<textarea spellcheck="false" autocomplete="off" rows="8">'
            f"{escape(bodies[0])}</textarea></label>"
            + _folded("Fields of the body", self._fields(media["schema"]))
        )

    def _responses(self, about: Schema) -> Iterator[str]:
        for status, response in about.get("responses", {}).items():
            schema = response.get("content", {}).get(_JSON, {}).get("schema", {})
            fields = self._fields(schema) if status.startswith("2") else ""
            yield f"<li><code>{status}</code><p>{_prose(response['description'])}</p>{fields}</li>"

    def _fields(self, schema: Schema, depth: int = _FIELDS_DEPTH) -> str:
        """Return a list of an object's fields, nested ones inside."""
        found = self._resolved(schema)
        inner = self._resolved(found.get("items", {})) if found.get("type") == "array" else found
        properties, required = inner.get("properties", {}), inner.get("required", ())
        if not properties or not depth:
            return ""
        rows = (
            f'<li><code>{escape(name)}</code> <span class="type">{escape(self._type(field))}</span>'
            + ("<b>required</b>" if name in required else "")
            + f'<span class="note">{self._limits(field)}</span>'
            + f"<p>{_prose(self._resolved(field).get('description', ''))}</p>"
            + f"{self._fields(field, depth - 1)}</li>"
            for name, field in properties.items()
        )
        return f'<ul class="fields">{"".join(rows)}</ul>'

    def _resolved(self, schema: Schema) -> Schema:
        """Return a schema without its reference, and without the alternative null."""
        own = {key: value for key, value in schema.items() if key != "$ref"}
        if "$ref" in schema:
            return self._resolved(self._schemas[schema["$ref"].rsplit("/", 1)[1]] | own)
        options = [option for option in schema.get("anyOf", ()) if option.get("type") != "null"]
        return self._resolved(options[0] | own | {"anyOf": []}) if len(options) == 1 else schema

    def _type(self, schema: Schema) -> str:
        found = self._resolved(schema)
        values = found.get("enum") or ([found["const"]] if "const" in found else [])
        if values:
            return " | ".join(map(json.dumps, values))
        if found.get("type") == "array":
            return f"array of {self._type(found.get('items', {}))}"
        options = found.get("anyOf") or found.get("oneOf")
        types = found.get("type", "any")
        names = map(self._type, options) if options else [types] if isinstance(types, str) else types
        return " or ".join(dict.fromkeys(names))

    def _limits(self, schema: Schema) -> str:
        found = self._resolved(schema)
        default = found.get("default")
        facts = [
            _range(found.get("minimum"), found.get("maximum"), ""),
            _range(found.get("minLength"), found.get("maxLength"), " characters"),
            _range(found.get("minItems"), found.get("maxItems"), " items"),
            "" if default is None else f"default {json.dumps(default)}",
        ]
        return escape(", ".join(filter(None, facts)))


def _range(least: float | None, most: float | None, unit: str) -> str:
    if most is not None:
        return f"{_whole(least or 0)} to {_whole(most)}{unit}"
    return "" if least is None else f"{_whole(least)} or more{unit}"


def _whole(number: float) -> str:
    """Return "1" also for 1.0, which a schema has for an integer."""
    return f"{int(number):,}" if number == int(number) else str(number)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _prose(text: str) -> str:
    """Return text with its `code` marked."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _folded(title: str, content: str) -> str:
    return f'<details class="folded"><summary>{title}</summary>{content}</details>'
