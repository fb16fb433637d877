"use strict";
// ---- one question and its answer
class Turn {
  node = el("article.turn");

  constructor(question, collectionId) {
    Object.assign(this, { question, collectionId });
    this.reset();
  }

  reset() {
    Object.assign(this, { text: "", sources: [], citations: [], labels: [], meta: null, usage: null, done: null, problem: null, retrievalMs: null, stream: null, isStopped: false });
    this.node.replaceChildren($("turn").content.cloneNode(true));
    [this.head, this.where, this.status, , , this.body, this.progress, this.tail] = this.node.children;
    this.head.textContent = this.question;
    this.head.classList.toggle("long", this.question.length > 160);
    this.view = new AnswerView(this.body, (label) => this.chipsOf(label), (citations) => citations.map((citation) => this.chip(this.indexOf(citation.source_number), citation)));
    this.setPhase("waiting");
  }

  get running() { return this.phase === "waiting" || this.phase === "streaming"; }

  /** Says which collection was asked, where it is not the chosen one. */
  drawCollection() {
    const id = this.collectionId, collection = collectionOf(id);
    this.where.hidden = !id || id === state.collectionId;
    this.where.textContent = collection ? T.inCollection(collection.name) : T.inDeleted;
  }

  setPhase(phase) {
    this.phase = this.node.dataset.phase = phase;
    this.node.ariaBusy = this.body.ariaBusy = String(this.running);
    this.body.classList.toggle("streaming", this.running);
    if (phase !== "waiting") this.status.remove();
  }

  // ---- citations
  indexOf(number) { return this.sources.findIndex((source) => source.number === number); }

  /** Buttons for the numbers of a label, or null when one of them names no source. */
  chipsOf(label) {
    const known = [...new Set(label.match(/\d+/g).map(Number))].map((number) => this.indexOf(number));
    return known.includes(-1) ? null : known.map((index) => this.chip(index));
  }

  /** A button for a source; with what the server found, if it has resolved the label. */
  chip(index, citation = null) {
    const item = this.sources[index], place = citation ? citation.location_text : item.location_text;
    const title = joined(", ", sourceName(item), place), name = `${T.source(item.number)}: ${title}`;
    const verdict = T.verdicts[citation?.verdict], quote = citation ? this.sentenceOf(citation) : "";
    return el("button.cite", {
      "data-source": index, "data-verdict": verdict && citation.verdict,
      title: joined("\n", title, verdict), "aria-label": joined(". ", name, verdict),
      "aria-current": source.current?.turn === this && source.current.index === index && "true",
      onclick: ({ currentTarget }) => source.open(this.sources, index, currentTarget, quote || wordsBefore(currentTarget), place),
    }, item.number);
  }

  /** The sentence of its source that a citation rests on; "" if that is unclear. */
  sentenceOf({ source_number: number, start_offset: from, end_offset: to }) {
    const { text = "", start_offset: start, end_offset: end } = this.sources[this.indexOf(number)] ?? {};
    if (!text || !Number.isInteger(from) || from < start || to > end || to - from >= end - start) return "";
    return text.slice(codeUnits(text, from - start), codeUnits(text, to - start)).trim().slice(0, 1000);
  }

  /** Sources and sentences of the citations in the order of the answer, each pair once. */
  cited() {
    const found = this.citations.map((citation) => ({ index: this.indexOf(citation.source_number), quote: this.sentenceOf(citation) }));
    return [...new Map(found.map((one) => [JSON.stringify(one), one])).values()].slice(0, 100);
  }

  /** Where the citations of a source point to in its file, "p. 4"; without any, where the passage is. */
  placeOf(item) {
    const cited = this.citations.filter((citation) => citation.source_number === item.number).map((citation) => citation.location_text);
    return cited.length ? joined(", ", ...new Set(cited)) : item.location_text;
  }

  /** The headings above what a source is cited for, or above one cited sentence; without any, those of the passage. */
  headingOf(item, quote = "") {
    const cited = this.citations.filter((citation) => citation.source_number === item.number);
    const quoted = quote ? cited.filter((citation) => this.sentenceOf(citation) === quote) : [];
    const places = (quoted.length ? quoted : cited).flatMap((citation) => citation.locations ?? []).filter(({ heading }) => heading);
    return joined("; ", ...new Set(places.map(({ heading }) => headingOf({ ...item, heading })))) || headingOf(item);
  }

  // ---- its stream
  /** memory: a promise of what the question is asked with, beside itself. */
  run(memory) { return this.until(this.send(memory)); }

  async send(memory) {
    const json = { query: this.question, ...await memory };
    if ($("effort").value) json.effort = $("effort").value;
    if (this.isStopped) return;
    // The collection's own door tells the model to cite. Without any collection the other one says how to start.
    const path = this.collectionId ? url`/v1/collections/${this.collectionId}/query` : "/v1/rag/query";
    this.stream = new AnswerStream(path, json, { onEvent: (event, value) => this.receive(event, value), onResuming: (isResuming) => this.showProgress(isResuming ? T.resuming : null) });
    await this.stream.run();
  }

  /** Shows an answer that was stored. */
  restore({ content, sources, query_id: queryId, provider, model, details }) {
    Object.assign(this, { text: content, sources: sources ?? [], done: details ?? null, usage: details?.usage });
    this.meta = queryId && { ...details, request_id: queryId, extractive: provider === "extractive", model };
    details?.citations.forEach((citation) => this.receiveCitation(citation));
    this.finish("answered");
    if (!sources) this.tail.prepend(noteOf(T.noSources));
  }

  /** Fetches the rest of an answer whose connection was lost for too long. */
  goOn() {
    this.problem = null;
    this.tail.replaceChildren();
    this.setPhase("streaming");
    return this.until(this.stream.resume());
  }

  async until(end) {
    this.end = end;
    try {
      await end;
    } catch (error) {
      this.problem ??= error instanceof Problem ? error : new Problem(T.showFailed);
    }
    if (this.end !== end) return;  // it was asked again
    this.showProgress(null);
    if (this.done) this.finish(this.done.finish_reason === "stopped" ? "stopped" : "answered");
    else this.finish(this.isStopped || this.stream?.abandoned ? "stopped" : "failed");
    talk.ended(this);
  }

  receive(event, value) {
    if (event === "plan" && value.queries.length) this.status.textContent = T.searchingParts(value.queries.length);
    else if (event === "sources") this.receiveSources(value);
    else if (event === "meta" || event === "degraded") this.meta = { ...this.meta, ...value };
    else if (event === "token") this.receiveText(value.text ?? "");
    else if (event === "citation") this.receiveCitation(value);
    else if (event === "usage" || event === "done") this[event] = value;
    else if (event === "error") this.problem = problemFrom(value.problem ?? value, (value.problem ?? value).status ?? 500, null);
  }

  receiveSources({ sources = [], retrieval_ms: ms }) {
    this.sources = sources.map((one, index) => ({ ...one, number: one.number ?? index + 1 }));
    this.retrievalMs = ms ?? null;
    this.status.textContent = sources.length ? T.reading(sources.length) : T.nothingMatched;
  }

  receiveText(text) {
    this.text += text;
    if (this.phase === "waiting" && this.text) this.setPhase("streaming");
    this.drawSoon();
  }

  /** Citations come with their sentence's end, in the order of their labels; those of one label are drawn together. */
  receiveCitation(citation) {
    if (this.indexOf(citation.source_number) < 0) return;
    this.citations.push(citation);
    const start = codeUnits(this.text, citation.start), last = this.labels.at(-1);
    if (last?.start === start) last.citations.push(citation);
    else if (start >= (last?.end ?? 0)) this.labels.push({ start, end: codeUnits(this.text, citation.end), citations: [citation] });
    this.drawSoon();
  }

  stop() {
    this.isStopped = true;
    this.stream?.stop();
    if (this.running) this.showProgress(T.stopping);
  }

  // ---- what is shown
  /** Show the state of the rest below the answer; null: none. */
  showProgress(text) {
    this.progress.hidden = !text;
    this.progress.textContent = text;
    if (text) announce(text);
  }

  drawSoon() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; if (this.running) this.draw(); });
  }

  draw() {
    this.view.show(T.fixed[this.text] ?? this.text, this.running, this.labels);
    this.node.toggleAttribute("data-extractive", Boolean(this.meta?.extractive));
    talk.follow();
  }

  finish(phase) {
    this.text = this.done?.answer ?? this.text;
    this.setPhase(phase);
    this.draw();
    this.tail.replaceChildren(...[this.ending(), sourceList(this), footerOf(this), feedbackOf(this), evidenceOf(this)].filter(Boolean));
  }

  /** The same problem is said once: not where the banner, or the question before, says it. */
  failure() {
    const { message, requestId, status } = this.problem, before = talk.turns[talk.turns.indexOf(this) - 1]?.problem?.message;
    const isSaid = before === message || (!$("banner").hidden && $("banner").textContent.includes(message)), canResume = this.stream?.canResume;
    return copyOf("failure", {
      p: isSaid ? T.sameProblem : message,
      small: requestId && T.request(requestId),
      ".solid": canResume && { onclick: () => talk.goOn(this) },
      ".again": [{ onclick: () => talk.retry(this) }, canResume ? T.askAgain : status === 401 ? T.signIn : T.retry],
    });
  }

  ending() {
    if (this.phase === "failed") return this.failure();
    if (this.phase === "stopped") return noteOf(this.text ? T.stoppedText : T.stoppedEarly);
    const reason = T.endings[this.done?.finish_reason] ?? T.endings[this.done?.outcome];
    const text = joined(" ", reason, this.meta?.query_truncated && T.tooLong, !this.text.trim() && T.noAnswer);
    return text && noteOf(text);
  }
}

const noteOf = (text) => el("p.note", { role: "note" }, text);
