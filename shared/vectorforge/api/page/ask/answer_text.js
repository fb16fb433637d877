"use strict";
// ---------------------------------------------------------------- light formatting of answers
const LABEL = String.raw`\[\s*(?:(?:Context|Source)s?\s+)?#?\d{1,3}(?:\s*(?:[,;&]|and)\s*(?:(?:Context|Source)s?\s+)?#?\d{1,3})*\s*\]`;
const LINK = String.raw`(?<image>!?)\[(?<label>[^\[\]\n]*)\]\((?<url>[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+"[^"\n]*")?\)|`;
const inline = (link) => new RegExp(String.raw`(\`+)([^\`]|[^\`].*?[^\`])\1(?!\`)|\*\*(?=\S)(.+?)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]*[^\s*])\*(?![\w*])|\uE000\d+\.\d+\uE001|` + link + LABEL, "gis");
const INLINE = inline(""), WITH_LINKS = inline(LINK);
/** A label that the server has resolved, as it stands in the text until it is drawn. */
const RESOLVED = /\uE000(\d+)\.\d+\uE001/g;
const LONG_LABEL = /\[\s*(?:Context|Source)s?\s+#?\d/i;

/** Appends text to a node: code, bold, italics, labels like [Context 3], [Source 3], [3] through makeCitation, and links
    through makeCitation.link if there is one. */
function appendInline(node, text, makeCitation) {
  let last = 0;
  for (const match of text.matchAll(makeCitation.link ? WITH_LINKS : INLINE)) {
    let made;
    if (match[2] !== undefined) made = [el("code", {}, makeCitation.plain(match[2].trim() || match[2]))];
    else if (match[3] !== undefined) made = [el("strong")];
    else if (match[4] !== undefined) made = [el("i")];
    else if (match.groups?.label !== undefined) made = [makeCitation.link(match.groups)];
    else made = makeCitation(match[0]);
    if (!made) continue;
    const inner = match[3] ?? match[4] ?? match.groups?.label;
    if (inner) appendInline(made[0], inner, makeCitation);
    node.append(text.slice(last, match.index), ...made);
    last = match.index + match[0].length;
  }
  node.append(text.slice(last));
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([^`]*)$/;
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
      const next = lines.slice(i + 1).find((l) => l.trim());
      if (!(open?.kind === "list" && next !== undefined && (ITEM.test(next) || /^\s{2,}\S/.test(next)))) open = null;
    } else if (HEADING.test(line)) { push("heading", line, true); open = null; }
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

function renderBlock({ kind, text }, makeCitation) {
  if (kind === "code") return el("pre", { tabindex: "0" }, el("code", {}, makeCitation.plain(text)));
  if (kind === "heading") {
    const node = el(makeCitation.heading ?? "h3");  // one level: no text of a document or a model skips one
    appendInline(node, HEADING.exec(text)[2], makeCitation);
    return node;
  }
  if (kind === "quote") {
    const node = el("blockquote");
    for (const block of blocksOf(text)) node.append(renderBlock(block, makeCitation));
    return node;
  }
  if (kind === "list") return renderList(text, makeCitation);
  if (kind === "table") return renderTable(text, makeCitation);
  const node = el("p");
  text.split("\n").forEach((line, index) => {
    if (index) node.append(softBreak(line));
    appendInline(node, line.trim(), makeCitation);
  });
  return node;
}

/** Between two lines: a space where a sentence was only wrapped, as in quotations, else a line break. */
function softBreak(nextLine) {
  return /^\s*\p{Ll}/u.test(nextLine) ? document.createTextNode(" ") : el("br");
}

function renderList(text, makeCitation) {
  const stack = [];
  let root = null;
  for (const line of text.split("\n")) {
    const match = ITEM.exec(line);
    if (!match) {
      if (line.trim()) { stack.at(-1).item.append(softBreak(line)); appendInline(stack.at(-1).item, line.trim(), makeCitation); }
      continue;
    }
    const indent = match[1].replace(/\t/g, "    ").length, ordered = /\d/.test(match[2]);
    while (stack.length > 1 && indent < stack.at(-1).indent) stack.pop();
    if (!stack.length || (indent > stack.at(-1).indent + 1 && stack.length < 6)) {
      const list = el(ordered ? "ol" : "ul", ordered && parseInt(match[2], 10) !== 1 ? { start: parseInt(match[2], 10) } : {});
      if (stack.length) stack.at(-1).item.append(list); else root = list;
      stack.push({ list, indent, item: null });
    }
    const item = el("li");
    appendInline(item, match[3], makeCitation);
    stack.at(-1).list.append(item);
    stack.at(-1).item = item;
  }
  return root;
}

function renderTable(text, makeCitation) {
  const rows = text.split("\n").filter((line, index) => !(index === 1 && TABLE_RULE.test(line)))
    .map((line) => line.trim().replace(/^\||\|$/g, "").split("|"));
  const table = el("table");
  rows.forEach((cells, index) => {
    const row = el("tr");
    for (const cell of cells) {
      const node = el(index ? "td" : "th");
      appendInline(node, cell.trim(), makeCitation);
      row.append(node);
    }
    table.append(row);
  });
  return el("div", { class: "table", tabindex: "0" }, table);
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
  /** makeChips(label): for text that looks like a label; makeResolved(citations): for one that is. Both return nodes. */
  constructor(container, makeChips, makeResolved) {
    Object.assign(this, { container, makeChips, makeResolved });
    this.shown = [];
  }

  show(text, streaming, labels) {
    let visible = withMarks(text, labels);
    if (streaming) {
      visible = visible.replace(/\[[\sA-Za-z]{0,9}\s?#?\d{0,3}$/, "");  // half a label: wait for the rest
      const tail = visible.slice(visible.lastIndexOf("\n\n") + 1);
      if ((tail.match(/\*\*/g) ?? []).length % 2) visible = visible.endsWith("**") ? visible.slice(0, -2) : visible + "**";
    }
    const longLabels = LONG_LABEL.test(text);
    const cite = (label) => {
      if (label.startsWith("\uE000")) return this.makeResolved(labels[Number.parseInt(label.slice(1), 10)].citations);
      return longLabels && !LONG_LABEL.test(label) ? null : this.makeChips(label);
    };
    cite.plain = (code) => code.replace(RESOLVED, (_, index) => text.slice(labels[index].start, labels[index].end));
    const blocks = blocksOf(visible);
    const keys = blocks.map((block) => `${block.kind} ${longLabels} ${block.text}`);
    const focused = [...this.container.querySelectorAll("button")].indexOf(document.activeElement);
    keys.forEach((key, index) => {
      if (this.shown[index] === key) return;
      const node = renderBlock(blocks[index], cite);
      if (index < this.container.children.length) this.container.children[index].replaceWith(node);
      else this.container.append(node);
    });
    while (this.container.children.length > keys.length) this.container.lastChild.remove();
    this.shown = keys;
    if (focused >= 0) this.container.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
  }
}
