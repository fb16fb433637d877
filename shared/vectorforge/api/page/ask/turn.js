"use strict";
// ---------------------------------------------------------------- one question and its answer
const FIRST_BYTE_MS = 150000, SILENCE_MS = 60000;  // the server pings every 15 s once it has begun
const ENDINGS = {
  length: "The answer reached its length limit and stops here.", deadline: "Time ran out, so the answer stops here.",
  content_filter: "The model's content filter ended this answer.",
};

class Turn {
  constructor(question, collectionId) {
    Object.assign(this, { question, collectionId, phase: "waiting" });
    this.node = el("article", { class: "turn", "aria-busy": "true" });
    this.reset();
  }

  reset() {
    Object.assign(this, { text: "", sources: [], meta: null, usage: null, done: null, problem: null, retrievalMs: null, controller: new AbortController(), silent: false });
    this.head = el("h2", this.question.length > 160 ? { class: "long" } : {}, this.question);
    this.status = el("p", { class: "state" }, "Searching");
    this.body = el("div", { class: "answer streaming", "aria-live": "polite", "aria-busy": "true", "aria-label": "Answer" });
    this.tail = el("div");
    this.node.replaceChildren(this.head, this.status, this.body, this.tail);
    this.view = new AnswerView(this.body, (label) => this.citations(label));
    this.setPhase("waiting");
  }

  get running() { return this.phase === "waiting" || this.phase === "streaming"; }

  setPhase(phase) {
    this.phase = phase;
    this.node.dataset.phase = phase;
    this.node.setAttribute("aria-busy", String(this.running));
    this.body.setAttribute("aria-busy", String(this.running));
    this.body.classList.toggle("streaming", this.running);
    if (!this.running) this.status.remove();
  }

  /** Buttons for the numbers of a label, or null when one of them names no source. */
  citations(label) {
    const numbers = [...new Set(label.match(/\d+/g).map(Number))];
    const known = numbers.map((n) => this.sources.findIndex((s) => s.number === n));
    if (known.includes(-1)) return null;
    return known.map((index) => el("button", {
      class: "cite", type: "button", "data-source": index, title: sourceName(this.sources[index]),
      "aria-label": `Source ${this.sources[index].number}: ${sourceName(this.sources[index])}`,
      "aria-current": source.current?.turn === this && source.current.index === index ? "true" : null,
      onclick: (event) => source.open(this.sources, index, event.currentTarget, wordsBefore(event.currentTarget)),
    }, String(this.sources[index].number)));
  }

  async run(history) {
    const { signal } = this.controller;
    let timer;
    const patience = (ms) => { clearTimeout(timer); timer = setTimeout(() => { this.silent = true; this.controller.abort(); }, ms); };
    try {
      patience(FIRST_BYTE_MS);
      const json = { query: this.question, stream: true };
      if (history.length) json.messages = history;
      // The collection's own door tells the model to cite. Without any collection the other one says how to start.
      const path = this.collectionId ? `/v1/collections/${encodeURIComponent(this.collectionId)}/query` : "/v1/rag/query";
      const response = await request(path, { method: "POST", json, signal, accept: "text/event-stream" });
      if (!/^text\/event-stream/.test(response.headers.get("Content-Type") ?? "") || !response.body) throw new Problem("The server did not stream an answer.");
      await this.read(response.body, () => patience(SILENCE_MS));
    } catch (error) {
      if (this.silent) this.problem = new Problem("The server went silent before the answer was complete.");
      else if (signal.aborted) { this.finish("stopped"); return; }
      else if (error instanceof Problem) this.problem = error;
      else this.problem = new Problem("The connection broke before the answer was complete.");
    } finally {
      clearTimeout(timer);
    }
    this.finish(this.problem ? "failed" : "answered");
  }

  async read(body, onBytes) {
    for await (const { event, data } of serverEvents(body, onBytes)) {
      const value = parseJson(data);
      if (value === null) throw new Problem("The server's stream could not be read.");
      if (event === "meta") this.meta = value;
      else if (event === "sources") this.receiveSources(value);
      else if (event === "degraded") this.meta = { ...this.meta, ...value };
      else if (event === "token") this.receiveText(value.text ?? "");
      else if (event === "usage") this.usage = value;
      else if (event === "done") { this.done = value; return; }
      else if (event === "error") { this.problem = problemFrom(value.problem ?? value, (value.problem ?? value).status ?? 500, null); return; }
    }
    throw new Problem("The answer broke off before its end.");
  }

  receiveSources({ sources = [], retrieval_ms: ms }) {
    this.sources = sources.map((s, index) => ({ ...s, number: s.number ?? index + 1 }));
    this.retrievalMs = ms ?? null;
    this.status.textContent = sources.length ? `Reading ${plural(sources.length, "passage")}` : "Nothing matched";
  }

  /** Says "quoted" only where something is. */
  drawBadge() {
    if (!this.meta?.extractive) return;
    const quotes = this.body.querySelector(".cite") !== null;
    if (!quotes && this.running) return;
    const text = quotes ? "Quoted from your documents, no model wrote this" : "No model wrote this";
    if (!this.badge?.isConnected) this.body.before(this.badge = el("p", { class: "badge" }, icon("quote"), el("span")));
    this.badge.lastChild.textContent = text;
  }

  receiveText(text) {
    this.text += text;
    if (this.phase === "waiting" && this.text) { this.setPhase("streaming"); this.status.remove(); }
    this.frame ??= requestAnimationFrame(() => { this.frame = null; if (this.running) this.draw(); });
  }

  draw() {
    this.view.show(this.text, this.running);
    this.drawBadge();
    talk.follow();
  }

  finish(phase) {
    if (typeof this.done?.answer === "string") this.text = this.done.answer;
    this.setPhase(phase);
    this.draw();
    this.tail.replaceChildren(...[this.ending(), this.sourceList(), this.footer()].filter(Boolean));
    talk.ended(this);
  }

  ending() {
    if (this.phase === "failed") {
      return el("div", { class: "problem", role: "alert" }, el("p", {}, this.problem.message),
        this.problem.requestId ? el("small", {}, `Request ${this.problem.requestId}`) : null,
        el("button", { class: "button", type: "button", onclick: () => talk.retry(this) }, "Retry"));
    }
    if (this.phase === "stopped") return el("p", { class: "note", role: "note" }, this.text ? "Stopped. This is not the whole answer." : "Stopped before an answer came.");
    const reason = ENDINGS[this.done?.finish_reason] ?? ENDINGS[this.done?.outcome];
    const notes = [reason, this.meta?.query_truncated ? "The question was too long and was cut." : null, this.text.trim() ? null : "The model gave no answer."].filter(Boolean);
    return notes.length ? el("p", { class: "note", role: "note" }, notes.join(" ")) : null;
  }

  sourceList() {
    if (!this.sources.length) return null;
    const used = new Set([...this.body.querySelectorAll(".cite")].map((node) => Number(node.dataset.source)));
    const cited = this.sources.map((_, index) => index).filter((index) => used.has(index));
    const others = this.sources.map((_, index) => index).filter((index) => !used.has(index));
    const scale = Math.max(1, ...this.sources.map((s) => s.score ?? 0));
    const list = el("ul", {}, ...(cited.length ? cited : others).map((index) => this.sourceRow(index, used, scale)));
    const section = el("section", { class: "sources", "aria-label": "Sources" }, el("h3", {}, cited.length ? "Sources" : "Passages found"), list);
    if (cited.length && others.length) {
      const more = el("button", { class: "text-button", type: "button", onclick: () => {
        const rows = others.map((index) => this.sourceRow(index, used, scale));
        list.append(...rows);
        more.parentNode.remove();
        rows[0].querySelector("button").focus();
      } }, `${plural(others.length, "more passage")} read, not cited`);
      section.append(el("p", { class: "more" }, more));
    }
    return section;
  }

  sourceRow(index, used, scale) {
    const item = this.sources[index], name = sourceName(item), file = item.document_source || item.source;
    const about = [headingOf(item), file && file !== name ? file : null].filter(Boolean).join(" · ") || firstWords(item.text || item.snippet);
    const bar = el("i"), score = typeof item.score === "number" ? item.score : null;
    if (score !== null) bar.style.width = `${Math.max(0, Math.min(1, score / scale)) * 100}%`;
    return el("li", used.has(index) ? {} : { class: "uncited" },
      el("button", { class: "source", type: "button", "data-source": index, onclick: (event) => source.open(this.sources, index, event.currentTarget) },
        el("span", { class: "number" }, String(item.number)), el("b", {}, name), el("em", {}, about),
        score === null ? null : el("span", { class: "score", title: "Similarity to the question" }, el("i", { "aria-hidden": "true" }, bar), el("span", { class: "sr" }, "similarity "), score.toFixed(2))));
  }

  footer() {
    const facts = [], latency = this.done?.latency ?? {};
    const step = this.done?.degraded?.at(-1);
    if (step) facts.push(INSTEAD[step] ?? step);
    else if (this.done?.cached) facts.push("Answered before, on the same documents");
    const search = latency.retrieval_ms ?? this.retrievalMs, total = latency.total_ms;
    if (typeof search === "number") facts.push(`Searched in ${duration(search)}`);
    if (typeof total === "number") facts.push(`answered in ${duration(total)}`);
    if (this.usage?.total_tokens && !this.meta?.extractive) facts.push(`${(this.usage.prompt_tokens ?? 0).toLocaleString()} tokens read, ${(this.usage.completion_tokens ?? 0).toLocaleString()} written`);
    if (this.meta?.model && !this.meta.extractive) facts.push(this.meta.model);
    const node = el("p", { class: "foot" }, el("span", {}, facts.join(" · ")));
    if (this.text && navigator.clipboard) {
      const copy = el("button", { class: "text-button", type: "button", onclick: () => navigator.clipboard.writeText(this.text).then(() => { copy.textContent = "Copied"; announce("Answer copied."); }, () => announce("Copying is not allowed here.")) }, "Copy");
      node.append(copy);
    }
    if (this.phase === "stopped") node.append(el("button", { class: "text-button", type: "button", onclick: () => talk.retry(this) }, "Ask again"));
    return node.textContent ? node : null;
  }
}

/** What came in place of the full answer. */
const INSTEAD = {
  provider: "Another model answered in its place",
  stale: "The model does not answer now: an earlier answer",
  passages: "The model does not answer now: passages found",
  ungrounded: "Your documents could not be searched: not from them",
  template: "The model does not answer now",
};
const sourceName = (item) => item.title || item.document_source || item.source || `Source ${item.number}`;
/** The heading path without the document's title, which stands beside it. */
const headingOf = (item) => {
  const parts = (item.heading ?? "").split(" > ");
  return (parts[0] === item.title ? parts.slice(1) : parts).join(" > ");
};
const firstWords = (text) => (text ?? "").replace(/\s+/g, " ").trim().slice(0, 120);
