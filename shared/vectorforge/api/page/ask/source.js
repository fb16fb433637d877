"use strict";
// ---------------------------------------------------------------- one document, with its passage highlighted
const WINDOW = 120000;  // characters shown on each side of the passage before "Show everything"

const source = {
  current: null,  // {passages, index, quote, place, turn}
  texts: new Map(),

  async open(passages, index, opener, quote = "", place = null) {
    this.current = { passages, index, quote, place, turn: this.turnOf(passages) };
    panel.open("source", opener);
    markCurrent();
    await this.draw();
  },

  turnOf(passages) { return talk.turns.find((t) => t.sources === passages) ?? null; },

  async draw() {
    const showing = this.current, passage = showing.passages[showing.index];
    const name = sourceName(passage);
    const file = passage.document_source || passage.source || "";
    const tools = el("div", { class: "tools" }, el("button", { class: "back", type: "button", onclick: () => documents.open() }, icon("left"), T.allDocuments));
    if (showing.passages.length > 1) tools.append(this.stepper());
    if (passage.chunk_id) tools.append(el("a", { class: "text-button", id: "open-source", href: this.link(), target: "_blank", rel: "opener" }, T.openPage));  // the opener lends its key
    tools.append(panel.closeButton());
    const place = showing.place ?? showing.turn?.placeOf(passage) ?? passage.location_text;
    const meta = el("p", { class: "meta" }, [place, file !== name ? file : null, headingOf(passage)].filter(Boolean).join(" · "));
    panel.head(tools, el("h2", { class: "name", id: "panel-title", tabindex: "-1" }, name), meta);
    const body = $("panel-body");
    if (body.dataset.document !== passage.document_id) body.replaceChildren(el("p", { class: "quiet" }, T.opening));
    try {
      const whole = await this.textOf(passage.document_id);
      if (this.current !== showing || showing.passages[showing.index] !== passage) return;
      this.show(whole, passage);
    } catch (error) {
      if (this.current !== showing) return;
      this.showAlone(passage, error.status === 404 ? T.documentDeleted : error.message);
    }
  },

  /** Address of the source page with the answer's citations and their sentences, this one first in view. */
  link() {
    const { passages, index, quote, turn } = this.current;
    let shown = turn?.cited() ?? [];
    if (!shown.some((one) => one.index === index)) shown = passages.map((_, at) => ({ index: at, quote: at === index ? quote : "" }));
    const exact = shown.findIndex((one) => one.index === index && one.quote === quote);
    const at = exact < 0 ? shown.findIndex((one) => one.index === index) : exact;
    const cited = new URLSearchParams(shown.map((one) => ["chunk", passages[one.index].chunk_id]));
    const given = new URLSearchParams([["at", String(at + 1)], ...shown.map((one) => ["quote", one.quote])]);
    return `${base}/source?${cited}#${given}`;
  },

  stepper() {
    const { passages, index } = this.current;
    const go = (to) => () => { this.current = { ...this.current, index: to, quote: this.current.turn?.cited().find((one) => one.index === to)?.quote ?? "", place: null }; markCurrent(); this.draw().then(() => $("panel").querySelector(`.step button:nth-of-type(${to > index ? 2 : 1}):not(:disabled)`)?.focus()); };
    return el("span", { class: "step" },
      iconButton("left", T.previousSource, go(index - 1), { disabled: index === 0 }),
      el("span", {}, T.at(index + 1, passages.length)),
      iconButton("right", T.nextSource, go(index + 1), { disabled: index === passages.length - 1 }));
  },

  async textOf(id) {
    const known = this.texts.get(id);
    if (known) return known;
    const whole = await getJson(`/v1/documents/${encodeURIComponent(id)}/text`);
    if (this.texts.size > 8) this.texts.delete(this.texts.keys().next().value);
    this.texts.set(id, whole);
    return whole;
  },

  /** Where the passage stands in the text today: by its offsets, or by its words if the document has changed. */
  locate(text, passage) {
    if (!Number.isInteger(passage.start_offset)) return null;
    const start = codeUnits(text, passage.start_offset);
    const end = start + codeUnits(text.slice(start), passage.end_offset - passage.start_offset);
    if (!passage.text || text.slice(start, end) === passage.text) return { start, end };
    const found = text.indexOf(passage.text);
    return found < 0 ? "changed" : { start: found, end: found + passage.text.length };
  },

  show(whole, passage, everything = false) {
    const text = whole.text ?? "", place = this.locate(text, passage), body = $("panel-body");
    if (place === "changed") { this.showAlone(passage, T.documentChanged); return; }
    const focus = place ?? { start: 0, end: 0 };
    const from = everything ? 0 : Math.max(0, focus.start - WINDOW), to = everything ? text.length : Math.min(text.length, focus.end + WINDOW);
    const page = el("div", { class: "page" + (/csv|json/.test(whole.media_type ?? "") ? " code" : ""), id: "document-text" });
    const mark = place ? el("mark", { id: "passage" }) : null;
    const append = (node, part) => (/markdown/.test(whole.media_type ?? "") ? appendWithHeadings(node, part) : node.append(part));
    append(page, text.slice(from, focus.start));
    if (mark) { this.fillMark(mark, text.slice(focus.start, focus.end), append); page.append(mark); }
    append(page, text.slice(focus.end, to));
    const rest = () => textButton(T.wholeDocument, () => this.show(whole, passage, true));
    body.replaceChildren(...[from > 0 ? rest() : null, page, to < text.length ? rest() : null].filter(Boolean));
    body.dataset.document = whole.id ?? passage.document_id;
    this.scrollTo(mark?.querySelector(".quote") ?? mark);
    if (mark) announce(T.highlighted(sourceName(passage)));
  },

  /** The passage; where the answer quotes it word for word, the quotation stands out in it. */
  fillMark(mark, passage, append) {
    const quote = sentenceIn(passage, this.current?.quote ?? "", 2);
    if (!quote) { append(mark, passage); return; }
    append(mark, passage.slice(0, quote.start));
    mark.append(el("span", { class: "quote" }, passage.slice(quote.start, quote.end)));
    append(mark, passage.slice(quote.end));
  },

  showAlone(passage, reason) {
    const kept = passage.text || passage.snippet;
    delete $("panel-body").dataset.document;
    $("panel-body").replaceChildren(el("p", { class: "quiet", role: "note" }, reason),
      ...(kept ? [el("div", { class: "page" }, el("mark", { id: "passage" }, kept))] : []));
    $("panel-body").scrollTop = 0;
  },

  /** Puts the passage in the upper third, without moving anything outside the panel. */
  scrollTo(mark) {
    const body = $("panel-body");
    if (!mark) { body.scrollTop = 0; return; }
    const top = mark.getBoundingClientRect().top - body.getBoundingClientRect().top + body.scrollTop;
    body.scrollTop = Math.max(0, top - Math.max(24, Math.min(body.clientHeight / 3, (body.clientHeight - mark.getBoundingClientRect().height) / 2)));
  },
};

/** Markdown as it was written, with its heading lines set in bold. */
function appendWithHeadings(node, text) {
  let last = 0;
  for (const match of text.matchAll(/^#{1,6} .*$/gm)) {
    node.append(text.slice(last, match.index), el("b", {}, match[0]));
    last = match.index + match[0].length;
  }
  node.append(text.slice(last));
}

/** What the answer says between the previous citation and this one. */
function wordsBefore(citation) {
  let node = citation.previousSibling;
  while (node?.classList?.contains("cite")) node = node.previousSibling;  // [1][2]: both stand for the same words
  let words = "";
  for (; node && !node.classList?.contains("cite"); node = node.previousSibling) words = node.textContent + words;
  return words.trim().replace(/^["“”„«»]+|["“”„«»]+$/g, "");
}

/** Shows which citation the panel is about. */
function markCurrent() {
  for (const node of document.querySelectorAll("[data-source][aria-current]")) node.removeAttribute("aria-current");
  if (!source.current?.turn) return;
  for (const node of source.current.turn.node.querySelectorAll(`[data-source="${source.current.index}"]`)) node.setAttribute("aria-current", "true");
}
