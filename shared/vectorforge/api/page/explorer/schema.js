"use strict";
// ---- parts of an OpenAPI document as DOM nodes
let api = null;

/** A schema without its reference, and without the alternative null. */
function resolved(schema = {}) {
  const { $ref, ...own } = schema;
  if ($ref) return resolved({ ...api.components.schemas[$ref.split("/").at(-1)], ...own });
  const options = (schema.anyOf ?? []).filter((option) => option.type !== "null");
  return options.length === 1 ? resolved({ ...options[0], ...own, anyOf: undefined }) : schema;
}

function typeOf(schema) {
  const found = resolved(schema), options = found.anyOf ?? found.oneOf;
  const values = found.enum ?? ("const" in found ? [found.const] : null);
  if (values) return values.map((value) => JSON.stringify(value)).join(" | ");
  if (found.type === "array") return `array of ${typeOf(found.items)}`;
  return [...new Set(options?.map(typeOf) ?? [found.type ?? "any"].flat())].join(" or ");
}

function limitsOf(schema) {
  const found = resolved(schema);
  const range = (least, most, unit = "") => (most === undefined ? least !== undefined && `${least} or more${unit}` : `${least ?? 0} to ${most.toLocaleString()}${unit}`);
  return joined(", ", range(found.minimum, found.maximum), range(found.minLength, found.maxLength, " characters"), range(found.minItems, found.maxItems, " items"),
    (found.default ?? null) !== null && `default ${JSON.stringify(found.default)}`);
}

/** Text with its `code` marked. */
const prose = (text = "") => text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? el("code", part) : part));
const folded = (title, ...content) => el("details.folded", el("summary", title), ...content);

/** The fields of an object, nested ones inside, three levels deep. */
function fieldList(schema, depth = 3) {
  const found = resolved(schema), inner = found.type === "array" ? resolved(found.items) : found;
  const properties = Object.entries(inner.properties ?? {});
  if (!properties.length || !depth) return null;
  return el("ul.fields", properties.map(([name, field]) => el("li",
    el("code", name), " ", el("span.type", typeOf(field)), inner.required?.includes(name) && el("b", "required"),
    el("span.note", limitsOf(field)), el("p", prose(resolved(field).description)), fieldList(field, depth - 1))));
}
