"use strict";
// ---------------------------------------------------------------- parts of an OpenAPI document as DOM nodes
let api = null;

/** A schema without its reference, and without the alternative null. */
function resolved(schema = {}) {
  const { $ref, ...own } = schema;
  if ($ref) return resolved({ ...api.components.schemas[$ref.split("/").at(-1)], ...own });
  const options = (schema.anyOf ?? []).filter((option) => option.type !== "null");
  return schema.anyOf && options.length === 1 ? resolved({ ...options[0], ...own, anyOf: undefined }) : schema;
}

function typeOf(schema) {
  const found = resolved(schema);
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in found) return JSON.stringify(found.const);
  if (found.type === "array") return `array of ${typeOf(found.items)}`;
  const options = found.anyOf ?? found.oneOf;
  if (options) return [...new Set(options.map(typeOf))].join(" or ");
  return [found.type ?? "any"].flat().join(" or ");
}

function limitsOf(schema) {
  const { minimum, maximum, minLength, maxLength, minItems, maxItems, default: preset } = resolved(schema);
  const range = (least, most, unit) => (least === undefined && most === undefined ? null
    : `${least ?? 0} to ${most === undefined ? "any number of" : most.toLocaleString()}${unit}`.replace(/ to any number of$/, " or more"));
  return [range(minimum, maximum, ""), range(minLength, maxLength, " characters"), range(minItems, maxItems, " items"),
    preset === undefined || preset === null ? null : `default ${JSON.stringify(preset)}`].filter(Boolean).join(", ");
}

/** Text with its `code` marked. */
const prose = (text = "") => text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? el("code", {}, part) : part));

/** The fields of an object, nested ones inside, three levels deep. */
function fieldList(schema, depth = 3) {
  const found = resolved(schema), inner = found.type === "array" ? resolved(found.items) : found;
  const properties = Object.entries(inner.properties ?? {});
  if (!properties.length || !depth) return null;
  return el("ul", { class: "fields" }, ...properties.map(([name, field]) => el("li", {},
    el("code", {}, name), " ", el("span", { class: "type" }, typeOf(field)),
    inner.required?.includes(name) ? el("b", {}, "required") : null,
    el("span", { class: "note" }, limitsOf(field)), el("p", {}, ...prose(resolved(field).description)), fieldList(field, depth - 1))));
}

function folded(title, ...content) {
  return el("details", { class: "folded" }, el("summary", {}, title), ...content);
}
