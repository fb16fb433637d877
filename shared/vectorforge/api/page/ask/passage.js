"use strict";
// ---- a passage in the text of its document
const texts = new Map();

/** A document's {text, media_type}, cached. */
async function textOf(id) {
  const whole = texts.get(id) ?? await getJson(url`/v1/documents/${id}/text`);
  if (texts.size > 8) texts.delete(texts.keys().next().value);
  texts.set(id, whole);
  return whole;
}

/** Where a text has a chunk: {start, end} in UTF-16 units. */
function spanOf(text, { start_offset: from, end_offset: to }) {
  const start = codeUnits(text, from);
  return { start, end: start + codeUnits(text.slice(start), to - from) };
}

/** Where a passage has a sentence in whole words, or null. */
function sentenceIn(passage, quote) {
  const words = quote.trim().split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const gap = "(?<!W(?=W))".replaceAll("W", "[\\p{Cased}\\d]");
  const found = words.length > 1 ? new RegExp(gap + words.join("\\s+") + gap, "iu").exec(passage) : null;
  return found && { start: found.index, end: found.index + found[0].length };
}

/** The passage as a mark, with its sentence marked in it. */
function markOf(passage, quote) {
  const found = sentenceIn(passage, quote), { start, end } = found ?? { start: 0, end: 0 };
  return el(found ? "mark" : "mark.alone", { id: "passage" }, passage.slice(0, start), found && el("span.quote", passage.slice(start, end)), passage.slice(end));
}
