"use strict";
// ---- light formatting of answers
const LABEL = String.raw`\[\s*(?:(?:Context|Source)s?\s+)?#?\d{1,3}(?:\s*(?:[,;&]|and)\s*(?:(?:Context|Source)s?\s+)?#?\d{1,3})*\s*\]`;
const LINK = String.raw`(?<image>!?)\[(?<label>[^\[\]\n]*)\]\((?<url>[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+"[^"\n]*")?\)|`;
const inline = (link) => new RegExp(String.raw`(\`+)(?<code>[^\`]|[^\`].*?[^\`])\1(?!\`)|\*\*(?=\S)(?<strong>.+?)\*\*|(?<![\w*])\*(?=[^\s*])(?<i>[^*\n]*[^\s*])\*(?![\w*])|\uE000\d+\.\d+\uE001|` + link + LABEL, "gis");
const INLINE = inline(""), WITH_LINKS = inline(LINK);
/** A label that the server has resolved, until it is drawn. */
const RESOLVED = /\uE000(\d+)\.\d+\uE001/g;
const LONG_LABEL = /\[\s*(?:Context|Source)s?\s+#?\d/i;

/** Text as nodes: code, bold, italics, labels like [Context 3], [Source 3], [3] through cite, and links through cite.link
    if there is one. */
function inlineNodes(text, cite) {
  const nodes = [];
  let last = 0;
  for (const match of text.matchAll(cite.link ? WITH_LINKS : INLINE)) {
    const { code, strong, i, label } = match.groups;
    let made;
    if (code) made = el("code", cite.plain(code.trim() || code));
    else if (strong || i) made = el(strong ? "strong" : "i", inlineNodes(strong ?? i, cite));
    else made = label === undefined ? cite(match[0]) : cite.link(match.groups, inlineNodes(label, cite));
    if (!made) continue;
    nodes.push(text.slice(last, match.index), made);
    last = match.index + match[0].length;
  }
  return [...nodes, text.slice(last)].flat();
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([^`]*)$/;
const INDENTED = /^(?: {4}|\t)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.+?)\s*#*$/;
const ITEM = /^(\s*)([-*•+]|\d{1,4}[.)])\s+(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** Cuts an answer into blocks {kind, text}; a block's text never changes once another block follows it. */
function blocksOf(text) {
  const blocks = [], lines = text.split(/\r\n?|\n/);
  let open = null;
  const push = (kind, line, fresh = false) => {
    if (!fresh && open && open.kind === kind) open.lines.push(line);
    else blocks.push(open = { kind, lines: [line] });
  };
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i], fence = FENCE.exec(line);
    if (fence) {
      push("code", "", true);
      open.lines = [];
      const close = new RegExp(`^ {0,3}${fence[1][0]}{${fence[1].length},}\\s*$`);
      while (++i < lines.length && !close.test(lines[i])) open.lines.push(lines[i]);
      open = null;
    } else if (!line.trim()) {
      const next = lines.slice(i + 1).find((l) => l.trim()) ?? "";
      if (open?.kind === "code" && INDENTED.test(next)) open.lines.push("");
      else if (!(open?.kind === "list" && (ITEM.test(next) || /^\s{2,}\S/.test(next)))) open = null;
    } else if (INDENTED.test(line) && (open ? open.kind === "code" : !ITEM.test(line))) push("code", line.replace(INDENTED, ""));
    else if (HEADING.test(line)) { push("heading", line, true); open = null; }
    else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) open = null;
    else if (/^ {0,3}>/.test(line)) push("quote", line.replace(/^ {0,3}> ?/, ""));
    else if (ITEM.test(line)) {
      const [, indent, marker] = ITEM.exec(line), numbered = /\d/.test(marker);
      push("list", line, open?.kind === "list" && indent.length < 2 && open.numbered !== numbered);
      open.numbered ??= numbered;
    }
    else if (open?.kind === "list" && /^\s{2,}\S/.test(line)) push("list", line);
    else if (line.includes("|") && (open?.kind === "table" || TABLE_RULE.test(lines[i + 1] ?? "x"))) push("table", line);
    else push("paragraph", line);
  }
  return blocks.map(({ kind, lines: own }) => ({ kind, text: own.join("\n") }));
}

function renderBlock({ kind, text }, cite) {
  if (kind === "code") return el("pre", { tabindex: 0 }, el("code", cite.plain(text)));
  if (kind === "heading") return el(cite.heading ?? "h3", inlineNodes(HEADING.exec(text)[2], cite));  // one level: none is skipped
  if (kind === "quote") return el("blockquote", blocksOf(text).map((block) => renderBlock(block, cite)));
  if (kind === "list") return renderList(text, cite);
  if (kind === "table") return renderTable(text, cite);
  return el("p", text.split("\n").flatMap((line, index, lines) => [index > 0 && softBreak(cite, line, lines[index - 1]), ...inlineNodes(line.trim(), cite)]));
}

/** A space where a sentence was only wrapped, as in quotations and documents, else a line break. */
const softBreak = (cite, next, before) => ((cite.link ? !/( {2}|\\)$/.test(before) : /^\s*\p{Ll}/u.test(next) && !/[:\]\uE001]$/.test(before)) ? " " : el("br"));

function renderList(text, cite) {
  const stack = [];  // the open lists, each with its indent and its last item
  let root = null;
  for (const line of text.split("\n")) {
    const match = ITEM.exec(line);
    if (!match) {
      if (line.trim()) stack.at(-1).item.append(softBreak(cite, line, ""), ...inlineNodes(line.trim(), cite));
      continue;
    }
    const indent = match[1].replace(/\t/g, "    ").length, start = parseInt(match[2], 10);
    while (stack.length > 1 && indent < stack.at(-1).indent) stack.pop();
    if (!stack.length || (indent > stack.at(-1).indent + 1 && stack.length < 6)) {
      const list = Number.isNaN(start) ? el("ul") : el("ol", { start: start !== 1 && start });
      if (root) stack.at(-1).item.append(list); else root = list;
      stack.push({ list, indent });
    }
    const item = stack.at(-1).item = el("li", inlineNodes(match[3], cite));
    stack.at(-1).list.append(item);
  }
  return root;
}

function renderTable(text, cite) {
  const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const [head, rule, ...rest] = text.split("\n").map(cellsOf);
  const sides = rule.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : ""));
  const row = (cells, tag) => el("tr", cells.map((cell, at) => el(tag, { style: { textAlign: sides[at] ?? "" } }, inlineNodes(cell, cite))));
  return el("div.table", { tabindex: 0 }, el("table", row(head, "th"), rest.map((cells) => row(cells, "td"))));
}

/**
 * The text with each resolved label replaced by a mark, so that it is drawn as what the server says it is.
 * labels: [{start, end, citations}] in the order of the text, offsets in UTF-16 units.
 */
function withMarks(text, labels) {
  const clean = (part) => part.replace(/[\uE000\uE001]/g, "\uFFFD");
  let marked = "", last = 0;
  labels.forEach(({ start, end, citations }, index) => {
    marked += clean(text.slice(last, start)) + `\uE000${index}.${citations.length}\uE001`;
    last = end;
  });
  return marked + clean(text.slice(last));
}

/** Keeps a container showing the text so far; only blocks that changed are built again. */
class AnswerView {
  shown = [];

  /** makeChips(label): for text that looks like a label; makeResolved(citations): for one that is. Both return nodes. */
  constructor(container, makeChips, makeResolved) { Object.assign(this, { container, makeChips, makeResolved }); }

  show(text, streaming, labels) {
    let visible = withMarks(text, labels);
    if (streaming) {
      visible = visible.replace(/\[[\sA-Za-z]{0,9}\s?#?\d{0,3}$/, "");  // half a label: wait for the rest
      const tail = visible.slice(visible.lastIndexOf("\n\n") + 1);
      if ((tail.match(/\*\*/g) ?? []).length % 2) visible = visible.endsWith("**") ? visible.slice(0, -2) : visible + "**";
    }
    const longLabels = LONG_LABEL.test(text), { container } = this;
    const cite = (label) => {
      if (label.startsWith("\uE000")) return this.makeResolved(labels[Number.parseInt(label.slice(1), 10)].citations);
      return longLabels && !LONG_LABEL.test(label) ? null : this.makeChips(label);
    };
    cite.plain = (code) => code.replace(RESOLVED, (_, index) => text.slice(labels[index].start, labels[index].end));
    const blocks = blocksOf(visible), buttons = () => [...container.querySelectorAll("button")];
    const focused = buttons().indexOf(document.activeElement), before = this.shown;
    this.shown = blocks.map((block) => `${block.kind} ${longLabels} ${block.text}`);
    this.shown.forEach((key, index) => {
      if (before[index] === key) return;
      const node = renderBlock(blocks[index], cite);
      if (container.children[index]) container.children[index].replaceWith(node); else container.append(node);
    });
    while (container.children.length > blocks.length) container.lastChild.remove();
    if (focused >= 0) buttons()[focused]?.focus({ preventScroll: true });
  }
}
