"use strict";
// ---------------------------------------------------------------- one question and its answer
class Turn {
  constructor(question, collectionId) {
    Object.assign(this, { question, collectionId, phase: "waiting" });
    this.node = el("article", { class: "turn", "aria-busy": "true" });
    this.reset();
  }

  reset() {
    Object.assign(this, { text: "", sources: [], citations: [], labels: [], meta: null, usage: null, done: null, problem: null, retrievalMs: null, stream: null, progress: null, isStopped: false });
    this.head = el("h2", this.question.length > 160 ? { class: "long" } : {}, this.question);
    this.status = el("p", { class: "state" }, T.searching);
    this.body = el("div", { class: "answer streaming", role: "group", "aria-live": "polite", "aria-busy": "true", "aria-label": T.answer });
    this.tail = el("div");
    this.where = el("p", { class: "where", hidden: true });
    this.node.replaceChildren(this.head, this.where, this.status, this.body, this.tail);
    this.view = new AnswerView(this.body, (label) => this.chipsOf(label), (citations) => this.resolvedChips(citations));
    this.setPhase("waiting");
  }

  get running() { return this.phase === "waiting" || this.phase === "streaming"; }

  /** Says which collection was asked, where it is not the chosen one. */
  drawCollection() {
    const id = this.collectionId;
    this.where.hidden = !id || id === state.collectionId;
    this.where.textContent = collectionOf(id) ? T.inCollection(collectionOf(id).name) : T.inDeleted;
  }

  setPhase(phase) {
    this.phase = phase;
    this.node.dataset.phase = phase;
    this.node.setAttribute("aria-busy", String(this.running));
    this.body.setAttribute("aria-busy", String(this.running));
    this.body.classList.toggle("streaming", this.running);
    if (!this.running) this.status.remove();
  }

  /** Buttons for the numbers of a label, or null when one of them names no source. */
  chipsOf(label) {
    const numbers = [...new Set(label.match(/\d+/g).map(Number))];
    const known = numbers.map((n) => this.sources.findIndex((s) => s.number === n));
    if (known.includes(-1)) return null;
    return known.map((index) => this.chip(index));
  }

  /** The same for a label that the server has resolved, with what it found. */
  resolvedChips(citations) {
    return citations.map((citation) => this.chip(this.sources.findIndex((s) => s.number === citation.source_number), citation.verdict, citation.location_text, this.sentenceOf(citation)));
  }

  chip(index, verdict = null, place = this.sources[index].location_text, sentence = "") {
    const item = this.sources[index], title = [sourceName(item), place].filter(Boolean).join(", "), name = `${T.source(item.number)}: ${title}`;
    const said = T.verdicts[verdict] ?? null;
    return el("button", {
      class: "cite", type: "button", "data-source": index, "data-verdict": said ? verdict : null,
      title: said ? `${title}\n${said}` : title, "aria-label": said ? `${name}. ${said}` : name,
      "aria-current": source.current?.turn === this && source.current.index === index ? "true" : null,
      onclick: (event) => source.open(this.sources, index, event.currentTarget, sentence || wordsBefore(event.currentTarget), place),
    }, String(item.number));
  }

  /** The sentence of its source that a citation rests on; "" if that is unclear. */
  sentenceOf({ source_number: number, start_offset: from, end_offset: to }) {
    const { text = "", start_offset: start, end_offset: end } = this.sources.find((s) => s.number === number) ?? {};
    if (!text || !Number.isInteger(from) || from < start || to > end || to - from >= end - start) return "";
    return text.slice(codeUnits(text, from - start), codeUnits(text, to - start)).trim().slice(0, 1000);
  }

  /** Sources and sentences of the citations in the order of the answer, each pair once. */
  cited() {
    const found = this.citations.map((citation) => ({ index: this.sources.findIndex((s) => s.number === citation.source_number), quote: this.sentenceOf(citation) }));
    return found.filter((one, at) => found.findIndex((other) => other.index === one.index && other.quote === one.quote) === at).slice(0, 100);
  }

  /** Where the citations of a source point to in its file, "p. 4"; without any, where the passage is. */
  placeOf(item) {
    const cited = this.citations.filter((citation) => citation.source_number === item.number).map((citation) => citation.location_text);
    return cited.length ? [...new Set(cited)].filter(Boolean).join(", ") : item.location_text;
  }

  /** memory: a promise of what the question is asked with, beside itself. */
  run(memory) { return this.until(this.send(memory)); }

  async send(memory) {
    const json = { query: this.question, ...await memory };
    if ($("effort").value) json.effort = $("effort").value;
    if (this.isStopped) return;
    // The collection's own door tells the model to cite. Without any collection the other one says how to start.
    const path = this.collectionId ? `/v1/collections/${encodeURIComponent(this.collectionId)}/query` : "/v1/rag/query";
    this.stream = new AnswerStream(path, json, { onEvent: (event, value) => this.receive(event, value), onResuming: (isResuming) => this.showProgress(isResuming ? T.resuming : null) });
    await this.stream.run();
  }

  /** Shows an answer that was stored. */
  restore({ content, sources, query_id: queryId, provider, model, details }) {
    this.text = content;
    this.meta = queryId && { ...details, request_id: queryId, extractive: provider === "extractive", model };
    this.sources = sources ?? [];
    this.done = details ?? null;
    this.usage = details?.usage;
    details?.citations.forEach((citation) => this.receiveCitation(citation));
    this.finish("answered");
    if (!sources) this.tail.prepend(el("p", { class: "note", role: "note" }, T.noSources));
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
    if (event === "meta") this.meta = value;
    else if (event === "plan") this.status.textContent = value.queries.length ? T.searchingParts(value.queries.length) : this.status.textContent;
    else if (event === "sources") this.receiveSources(value);
    else if (event === "degraded") this.meta = { ...this.meta, ...value };
    else if (event === "token") this.receiveText(value.text ?? "");
    else if (event === "citation") this.receiveCitation(value);
    else if (event === "usage") this.usage = value;
    else if (event === "done") this.done = value;
    else if (event === "error") this.problem = problemFrom(value.problem ?? value, (value.problem ?? value).status ?? 500, null);
  }

  /** Show the state of the rest below the answer; null: none. */
  showProgress(text) {
    this.progress?.remove();
    this.progress = text && el("p", { class: "state" }, text);
    if (!text) return;
    this.body.after(this.progress);
    announce(text);
  }

  stop() {
    this.isStopped = true;
    this.stream?.stop();
    if (this.running) this.showProgress(T.stopping);
  }

  receiveSources({ sources = [], retrieval_ms: ms }) {
    this.sources = sources.map((s, index) => ({ ...s, number: s.number ?? index + 1 }));
    this.retrievalMs = ms ?? null;
    this.status.textContent = sources.length ? T.reading(sources.length) : T.nothingMatched;
  }

  /** Says "quoted" only where something is. */
  drawBadge() {
    if (!this.meta?.extractive) return;
    const quotes = this.body.querySelector(".cite") !== null;
    if (!quotes && this.running) return;
    const text = quotes ? T.quoted : T.unwritten;
    if (!this.badge?.isConnected) this.body.before(this.badge = el("p", { class: "badge" }, icon("quote"), el("span")));
    this.badge.lastChild.textContent = text;
  }

  receiveText(text) {
    this.text += text;
    if (this.phase === "waiting" && this.text) { this.setPhase("streaming"); this.status.remove(); }
    this.drawSoon();
  }

  /** Citations come with their sentence's end, in the order of their labels; those of one label are drawn together. */
  receiveCitation(citation) {
    if (!this.sources.some((s) => s.number === citation.source_number)) return;
    this.citations.push(citation);
    const start = codeUnits(this.text, citation.start), last = this.labels.at(-1);
    if (last?.start === start) last.citations.push(citation);
    else if (start >= (last?.end ?? 0)) this.labels.push({ start, end: codeUnits(this.text, citation.end), citations: [citation] });
    this.drawSoon();
  }

  drawSoon() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; if (this.running) this.draw(); });
  }

  draw() {
    this.view.show(this.text, this.running, this.labels);
    this.drawBadge();
    talk.follow();
  }

  finish(phase) {
    if (typeof this.done?.answer === "string") this.text = this.done.answer;
    this.setPhase(phase);
    this.draw();
    this.tail.replaceChildren(...[this.ending(), this.sourceList(), this.footer(), feedbackOf(this), evidenceOf(this)].filter(Boolean));
  }

  /** The same problem is said once: not where the banner, or the question before, says it. */
  failure() {
    const { message, requestId, status } = this.problem, before = talk.turns[talk.turns.indexOf(this) - 1]?.problem?.message;
    const isSaid = before === message || (!$("banner").hidden && $("banner").textContent.includes(message));
    const canResume = Boolean(this.stream?.canResume), again = canResume ? T.askAgain : status === 401 ? T.signIn : T.retry;
    return el("div", { class: "problem", role: "alert" }, el("p", {}, isSaid ? T.sameProblem : message),
      requestId ? el("small", {}, T.request(requestId)) : null,
      canResume ? el("button", { class: "button solid", type: "button", onclick: () => talk.goOn(this) }, T.fetchRest) : null,
      el("button", { class: "button", type: "button", onclick: () => talk.retry(this) }, again));
  }

  ending() {
    if (this.phase === "failed") return this.failure();
    if (this.phase === "stopped") return el("p", { class: "note", role: "note" }, this.text ? T.stoppedText : T.stoppedEarly);
    const reason = T.endings[this.done?.finish_reason] ?? T.endings[this.done?.outcome];
    const notes = [reason, this.meta?.query_truncated ? T.tooLong : null, this.text.trim() ? null : T.noAnswer].filter(Boolean);
    return notes.length ? el("p", { class: "note", role: "note" }, notes.join(" ")) : null;
  }

  sourceList() {
    if (!this.sources.length) return null;
    const used = new Set([...this.body.querySelectorAll(".cite")].map((node) => Number(node.dataset.source)));
    const cited = this.sources.map((_, index) => index).filter((index) => used.has(index));
    const others = this.sources.map((_, index) => index).filter((index) => !used.has(index));
    const scale = Math.max(1, ...this.sources.map((s) => nearness(s)[0] ?? 0));
    const list = el("ul", {}, ...(cited.length ? cited : others).map((index) => this.sourceRow(index, used, scale)));
    const section = el("section", { class: "sources", "aria-label": T.sources }, el("h3", {}, cited.length ? T.sources : T.passagesFound), list);
    if (cited.length && others.length) {
      const more = textButton(T.moreRead(others.length), () => {
        const rows = others.map((index) => this.sourceRow(index, used, scale));
        list.append(...rows);
        more.parentNode.remove();
        rows[0].querySelector("button").focus();
      });
      section.append(el("p", { class: "more" }, more));
    }
    return section;
  }

  sourceRow(index, used, scale) {
    const item = this.sources[index], name = sourceName(item), file = item.document_source || item.source;
    const about = [this.placeOf(item), headingOf(item), file && file !== name ? file : null].filter(Boolean).join(" · ") || firstWords(item.text || item.snippet);
    const bar = el("i"), [score, scoreName] = nearness(item);
    if (score !== null) bar.style.width = `${Math.max(0, Math.min(1, score / scale)) * 100}%`;
    return el("li", used.has(index) ? {} : { class: "uncited" },
      el("button", { class: "source", type: "button", "data-source": index, onclick: (event) => source.open(this.sources, index, event.currentTarget) },
        el("span", { class: "number" }, String(item.number)), el("b", {}, name), el("em", {}, about),
        score === null ? null : el("span", { class: "score", title: T.toQuestion(scoreName) }, el("i", { "aria-hidden": "true" }, bar), el("span", { class: "sr" }, `${scoreName.toLowerCase()} `), digits(score, 2))));
  }

  footer() {
    const facts = [], latency = this.done?.latency ?? {};
    const step = this.done?.degraded?.at(-1);
    if (step) facts.push(T.instead[step] ?? step);
    else if (this.done?.cached) facts.push(T.answeredBefore);
    const search = latency.retrieval_ms ?? this.retrievalMs, total = latency.total_ms;
    if (typeof search === "number") facts.push(T.searchedIn(duration(search)));
    if (typeof total === "number") facts.push(T.answeredIn(duration(total)));
    if (this.usage?.total_tokens && !this.meta?.extractive) facts.push(tokensText(this.usage));
    if (this.meta?.model && !this.meta.extractive) facts.push(this.meta.model);
    if (this.done?.cost_usd !== undefined && !this.meta?.extractive) facts.push(typeof this.done.cost_usd === "number" ? usd(this.done.cost_usd) : T.noPrice);
    const node = el("p", { class: "foot" }, el("span", {}, facts.join(" · ")));
    if (this.text && navigator.clipboard) {
      const copy = textButton(T.copy, () => navigator.clipboard.writeText(this.text).then(() => { copy.textContent = T.copied; announce(T.answerCopied); }, () => announce(T.noCopying)));
      node.append(copy);
    }
    if (this.phase === "stopped") node.append(textButton(T.askAgain, () => talk.retry(this)));
    return node.textContent ? node : null;
  }
}

/** The title, else the source; of an absolute path its last part. */
const sourceName = (item) => item.title || (item.document_source || item.source || T.source(item.number)).replace(/^\/.*\//, "");
/** The heading path without the document's title, which is shown next to it. */
const headingOf = (item) => {
  const parts = (item.heading ?? "").split(" > ");
  return (parts[0] === item.title ? parts.slice(1) : parts).join(" > ");
};
/** What the passage was ranked by, and its name: of vectors alone the score, else what vectors and words say together. */
const nearness = (item) => {
  if (typeof item.relevance === "number") return [item.relevance, T.relevance];
  return [typeof item.score === "number" ? item.score : null, T.similarity];
};
const firstWords = (text) => (text ?? "").replace(/\s+/g, " ").trim().slice(0, 120);
