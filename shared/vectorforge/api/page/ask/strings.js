"use strict";
// ---------------------------------------------------------------- the texts of the page, in the reader's language
/** The language chosen on this page, else the browser's, else English. */
const language = [remembered("localStorage", "vectorforge.language"), ...navigator.languages].map((tag) => tag?.slice(0, 2).toLowerCase())
  .find((tag) => ["en", "de"].includes(tag)) ?? "en";

/** A text with places, {0} or {0 passage}, as a function of what they hold: a value, or the count of a noun. */
const filled = (text) => (...values) => text.replace(/\{(\d)(?: (\w+))?\}/g, (_, at, noun) => (noun ? counted(values[at], noun) : values[at]));
const T = JSON.parse(document.querySelector(`script[lang=${language}]`).text, (_, value) => (/\{\d/.test(value) ? filled(value) : value));

const digits = (number, places) => number.toLocaleString(language, { minimumFractionDigits: places, maximumFractionDigits: places });
/** "1 passage", "1,200 passages". */
const counted = (count, noun) => `${digits(count)} ${T.nouns[noun][count === 1 ? 0 : 1]}`;

// The fixed texts of the page: text, or name with tooltip.
document.documentElement.lang = language;
for (const node of document.querySelectorAll("[data-t]")) node.append(T[node.dataset.t]);
for (const node of document.querySelectorAll("[data-name]")) {
  node.setAttribute("aria-label", T[node.dataset.name]);
  if (node.matches("button, a")) node.title = T[node.dataset.name];
}
