"use strict";
// ---------------------------------------------------------------- the texts of the pages, in the reader's language
/** The language chosen on this page, else the browser's, else English. */
function preferredLanguage() {
  let chosen = null;
  try { chosen = localStorage.getItem("vectorforge.language"); } catch { /* storage may be forbidden */ }
  return [chosen, ...navigator.languages].map((tag) => tag?.slice(0, 2).toLowerCase()).find((tag) => tag && document.querySelector(`script[lang="${CSS.escape(tag)}"]`)) ?? "en";
}
const language = preferredLanguage();

/** A text with places, {0} or {0 passage}, as a function of what they hold: a value, or the count of a noun. */
const filled = (text) => (...values) => text.replace(/\{(\d)(?: (\w+))?\}/g, (_, at, noun) => (noun ? counted(values[at], noun) : values[at]));
const T = JSON.parse(document.querySelector(`script[lang=${language}]`).text, (_, value) => (/\{\d/.test(value) ? filled(value) : value));

const digits = (number, places) => number.toLocaleString(language, { minimumFractionDigits: places, maximumFractionDigits: places });
/** "1 passage", "1,200 passages". */
const counted = (count, noun) => `${digits(count)} ${T.nouns[noun][count === 1 ? 0 : 1]}`;

// The fixed texts of the page and its templates: text, or name with tooltip.
document.documentElement.lang = language;
for (const root of [document, ...[...document.querySelectorAll("template")].map((one) => one.content)]) {
  for (const node of root.querySelectorAll("[data-t]")) node.append(T[node.dataset.t]);
  for (const node of root.querySelectorAll("[data-name]")) {
    node.setAttribute("aria-label", T[node.dataset.name]);
    if (node.matches("button, a")) node.title = T[node.dataset.name];
  }
}
