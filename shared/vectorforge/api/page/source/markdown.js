"use strict";
// ---- Markdown of a document, with the cited passage marked
/* Blocks are made as for answers. Links leave only for the web and for mail, images are their description, and HTML is
   text. The ends of passage and sentence go through the renderer as characters for private use. */
const ENDS = ["\uE002", "\uE003", "\uE004", "\uE005"];  // passage from and to, sentence from and to
const LINE_START = /^(?:\s*(?:#{1,6}|[-*+•]|\d{1,4}[.)]|>)(?=\s))*\s*(?:\|\s*)?/;
const UNMARKED = /^\s*(?:`{3,}|~{3,}|$|[-*_](?:\s*[-*_]){2,}\s*$)/;

/** True for fences, rules and blank lines, which cannot be marked. */
const isUnmarked = (line) => UNMARKED.test(line) || TABLE_RULE.test(line);

/** The offset at or after this one where a mark may begin: in the text of a line. */
function markStart(text, at) {
  for (let from = text.lastIndexOf("\n", at - 1) + 1; from < text.length;) {
    const end = text.indexOf("\n", from), line = text.slice(from, end < 0 ? text.length : end);
    if (!isUnmarked(line)) return Math.max(at, from + LINE_START.exec(line)[0].length);
    from += line.length + 1;
  }
  return text.length;
}

/** The offset at or before this one where a mark may end. */
function markEnd(text, at) {
  for (let to = at; to > 0;) {
    const from = text.lastIndexOf("\n", to - 1) + 1, line = text.slice(from, to);
    const words = line.trimEnd(), cells = words.endsWith("|") ? words.slice(0, -1).trimEnd() : words;
    if (!isUnmarked(line)) return from + cells.length;
    to = from - 1;
  }
  return 0;
}

/** The part of a document around the passage, from the start of a line, within a code block if it begins in one. */
function markdownAround(whole, { start, end }, quote, room, heading) {
  const from = start > room ? whole.lastIndexOf("\n", start - room) + 1 : 0;
  const fences = whole.slice(0, from).match(/^ {0,3}(```|~~~)/gm) ?? [], open = fences.length % 2 ? fences.at(-1).trim() + "\n" : "";
  const found = sentenceIn(whole.slice(start, end), quote), shift = start + open.length - from;
  const at = (span) => ({ start: shift + span.start, end: shift + span.end });
  return renderedMarkdown(open + whole.slice(from, end + room), at({ start: 0, end: end - start }), found && at(found), heading);
}

/** The Markdown; passage and sentence are {start, end} in UTF-16 units, or the sentence null. */
function renderedMarkdown(text, passage, sentence, heading) {
  const clean = text.replace(/[\uE000-\uE005]/g, "\uFFFD");
  const endsOf = ({ start, end }) => [markStart(clean, start), Math.max(markStart(clean, start), markEnd(clean, end))];
  const [from, to] = endsOf(passage), inner = sentence && endsOf(sentence);
  const ends = [[from, ENDS[0]], ...(inner ? [[inner[0], ENDS[2]], [inner[1], ENDS[3]]] : []), [to, ENDS[1]]];
  let marked = "", last = 0;
  for (const [at, end] of ends.sort((one, other) => one[0] - other[0])) {
    marked += clean.slice(last, at) + end;
    last = at;
  }
  const plain = Object.assign(() => null, { plain: (code) => code, link: linkTo, heading });
  return wrapMarks(el("div.answer", { dir: "auto" }, blocksOf(marked + clean.slice(last)).map((block) => renderBlock(block, plain))), !inner);
}

/** A link to the web or a mail address; of others, and of images, the text. */
function linkTo({ image, url: address }, text) {
  const target = URL.canParse(address) ? new URL(address) : null;
  if (image || !["http:", "https:", "mailto:"].includes(target?.protocol)) return el(image ? "span.image" : "span", text);
  return el("a", { href: target.href, target: "_blank", rel: "noopener noreferrer nofollow" }, text);
}

function wrapMarks(page, alone) {
  const walker = document.createTreeWalker(page, NodeFilter.SHOW_TEXT), nodes = [], open = new Set();
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    node.replaceWith(...node.data.split(/([\uE002-\uE005])/).flatMap((part) => {
      const end = ENDS.indexOf(part);
      if (end >= 0) open[end % 2 ? "delete" : "add"](end >> 1);
      if (end >= 0 || !part) return [];
      if (!open.size || !part.trim()) return part;
      return el(alone ? "mark.alone" : "mark", open.has(1) ? el("span.quote", part) : part);
    }));
  }
  page.querySelector("mark")?.setAttribute("id", "passage");
  return page;
}
