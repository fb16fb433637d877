"use strict";
// ---- one document in the panel, with its passage highlighted
const WINDOW = 120000;  // characters shown on each side of the passage before "Show everything"

const source = {
  current: null,  // {passages, index, quote, place, turn}

  open(passages, index, opener, quote = "", place = null) {
    panel.open("source", sourceName(passages[index]), opener);
    return this.show({ passages, index, quote, place, turn: talk.turns.find((turn) => turn.sources === passages) });
  },

  /** Marks what the panel is about, and draws it; null: it is about none. */
  show(current) {
    this.current = current;
    for (const node of document.querySelectorAll("[data-source][aria-current]")) node.ariaCurrent = null;
    for (const node of current?.turn?.node.querySelectorAll(`[data-source="${current.index}"]`) ?? []) node.ariaCurrent = "true";
    return current && this.draw();
  },

  step(by) {
    const { passages, turn, index } = this.current, to = index + by;
    return this.show({ passages, turn, index: to, quote: turn?.cited().find((one) => one.index === to)?.quote ?? "", place: null });
  },

  async draw() {
    const showing = this.current, passage = showing.passages[showing.index], body = $("panel-body");
    this.drawHead(showing, passage);
    if (body.dataset.document !== passage.document_id) body.replaceChildren(el("p.quiet", T.opening));
    try {
      const whole = await textOf(passage.document_id);
      if (this.current === showing) this.drawText(whole, passage);
    } catch (error) {
      if (this.current === showing) this.drawAlone(passage, error.status === 404 ? T.documentDeleted : error.message);
    }
  },

  drawHead({ passages, index, quote, place, turn }, passage) {
    const name = sourceName(passage), file = passage.document_source || passage.source;
    $("panel-title").textContent = name;
    $("source-meta").textContent = joined(" · ", place ?? turn?.placeOf(passage) ?? passage.location_text, file !== name && file, turn?.headingOf(passage, quote) ?? headingOf(passage));
    $("source-steps").hidden = passages.length < 2;
    $("source-position").textContent = T.at(index + 1, passages.length);
    $("previous-source").disabled = index === 0;
    $("next-source").disabled = index === passages.length - 1;
    $("open-source").hidden = !passage.chunk_id;
    $("open-source").href = this.link();
  },

  /** Address of the source page with the answer's citations and their sentences, this one first in view. */
  link() {
    const { passages, index, quote, turn } = this.current;
    let shown = turn?.cited() ?? [];
    if (!shown.some((one) => one.index === index)) shown = passages.map((_, at) => ({ index: at, quote: at === index ? quote : "" }));
    const exact = shown.findIndex((one) => one.index === index && one.quote === quote);
    const at = exact < 0 ? shown.findIndex((one) => one.index === index) : exact;
    const cited = new URLSearchParams(shown.map((one) => ["chunk", passages[one.index].chunk_id]));
    const given = new URLSearchParams([["at", at + 1], ...shown.map((one) => ["quote", one.quote])]);
    return `${base}/source?${cited}#${given}`;
  },

  /** Where the passage stands in the text today: by its offsets, or by its words if the document has changed. */
  locate(text, passage) {
    if (!Number.isInteger(passage.start_offset)) return { start: 0, end: 0 };
    const span = spanOf(text, passage);
    if (!passage.text || text.slice(span.start, span.end) === passage.text) return span;
    const start = text.indexOf(passage.text);
    return start < 0 ? null : { start, end: start + passage.text.length };
  },

  drawText(whole, passage, everything = false) {
    const { text, media_type: type } = whole, span = this.locate(text, passage), body = $("panel-body");
    if (!span) { this.drawAlone(passage, T.documentChanged); return; }
    const { start, end } = span, { quote } = this.current, room = everything ? Infinity : WINDOW;
    const rest = (isCut) => isCut && textButton(T.wholeDocument, () => this.drawText(whole, passage, true));
    panel.fill(rest(start > room), el(/csv|json/.test(type) ? "div.page.code" : "div.page", { id: "document-text" },
      /markdown/.test(type) ? markdownAround(text, span, quote, room, "h3")
        : [text.slice(Math.max(0, start - room), start), end > 0 && markOf(text.slice(start, end), quote), text.slice(end, end + room)]), rest(end + room < text.length));
    body.dataset.document = passage.document_id;
    body.scrollTop = 0;
    const mark = body.querySelector(".quote") ?? body.querySelector("mark");
    if (!mark) return;
    mark.scrollIntoView();
    announce(T.highlighted(sourceName(passage)));
  },

  drawAlone(passage, reason) {
    const kept = passage.text || passage.snippet;
    panel.fill(el("p.quiet", { role: "note" }, reason), kept && el("div.page", el("mark.alone", { id: "passage" }, kept)));
    $("panel-body").scrollTop = 0;
  },
};

/** What the answer says between the previous citation and this one, if that is more than two words. */
function wordsBefore(citation) {
  const isCitation = (one) => one?.classList?.contains("cite");
  let node = citation.previousSibling, words = "";
  while (isCitation(node)) node = node.previousSibling;  // [1][2]: both stand for the same words
  for (; node && !isCitation(node); node = node.previousSibling) words = node.textContent + words;
  return /\S\s+\S+\s+\S/.test(words) ? words.trim().replace(/^["“”„«»]+|["“”„«»]+$/g, "") : "";
}
