"use strict";
// ---- the texts of the page, in the reader's language
/** The language chosen on this page, else the browser's, else English. */
const language = [remembered("localStorage", "vectorforge.language"), ...navigator.languages].map((tag) => tag?.slice(0, 2).toLowerCase())
  .find((tag) => ["en", "de"].includes(tag)) ?? "en";

/** A text with places, {0} or {0 passage}, as a function of what they hold: a value, or the count of a noun. */
const filled = (text) => (...values) => text.replace(/\{(\d)(?: (\w+))?\}/g, (_, at, noun) => (noun ? counted(values[at], noun) : values[at]));
const T = JSON.parse(document.querySelector(`script[lang=${language}]`).text, (_, value) => (/\{\d/.test(value) ? filled(value) : value));

const digits = (number, places) => number.toLocaleString(language, { minimumFractionDigits: places, maximumFractionDigits: places });
/** "1 passage", "1,200 passages". */
const counted = (count, noun) => `${digits(count)} ${T.nouns[noun][count === 1 ? 0 : 1]}`;

/** "$10.00", "$0.0012". */
const usd = (amount) => amount.toLocaleString(language, { style: "currency", currency: "USD", ...(amount < 0.01 && { maximumSignificantDigits: 2 }) });

// The fixed texts of the page and its templates: text such as "reasons.unclear", or name with tooltip.
document.documentElement.lang = language;
for (const root of [document, ...[...document.querySelectorAll("template")].map((template) => template.content)]) {
  for (const node of root.querySelectorAll("[data-t]")) node.append(node.dataset.t.split(".").reduce((texts, key) => texts[key], T));
  for (const node of root.querySelectorAll("[data-name]")) {
    node.ariaLabel = T[node.dataset.name];
    if (node.matches("button, a")) node.title = T[node.dataset.name];
  }
}
