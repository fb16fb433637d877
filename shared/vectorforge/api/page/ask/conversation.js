"use strict";
// ---------------------------------------------------------------- the conversation
const talk = {
  turns: [],
  following: false,  // true if the end of a growing answer stays in view: once the reader has scrolled there
  get running() { return this.turns.find((turn) => turn.running) ?? null; },

  ask(question) {
    if (this.running || !question) return;
    const turn = new Turn(question, state.collectionId);
    this.turns.push(turn);
    $("turns").append(turn.node);
    this.start(turn);
  },

  start(turn) {
    const history = this.historyBefore(turn);
    this.following = false;
    welcome.draw();
    controls();
    $("scroll").scrollTop = this.turns[0] === turn ? 0 : $("scroll").scrollTop + turn.head.getBoundingClientRect().top - $("scroll").getBoundingClientRect().top - 28;
    announce("Searching your documents.");
    turn.run(history);
  },

  /** The last five exchanges, as the model should see them; all are about one collection. */
  historyBefore(turn) {
    const earlier = this.turns.slice(0, this.turns.indexOf(turn)).filter((t) => ["answered", "stopped"].includes(t.phase) && t.text.trim());
    return earlier.slice(-5).flatMap((t) => [{ role: "user", content: t.question }, { role: "assistant", content: t.text }]);
  },

  retry(turn) {
    if (this.running) return;
    turn.reset();
    this.start(turn);
    $("question").focus();
  },

  goOn(turn) {
    if (this.running) return;
    turn.goOn();
    controls();
    $("question").focus();
  },

  stop() { this.running?.stop(); },

  ended(turn) {
    if (!this.turns.includes(turn)) return;
    controls();
    this.follow();
    const count = turn.sources.length;
    announce({ answered: `Answer complete${count ? `, from ${plural(count, "passage")}` : ""}.`, stopped: "Answer stopped.", failed: "" }[turn.phase]);
  },

  clear() {
    this.stop();
    this.turns = [];
    $("turns").replaceChildren();
    if (panel.view === "source") panel.close();
    welcome.draw();
    controls();
    announce("New conversation.");
    $("question").focus();
  },

  follow() {
    if (this.following) $("scroll").scrollTop = $("scroll").scrollHeight;
    this.drawLatest();
  },

  drawLatest() {
    const box = $("scroll");
    $("latest").hidden = !this.turns.length || box.scrollHeight - box.scrollTop - box.clientHeight < 120;
  },
};

// ---------------------------------------------------------------- empty state
/** Of the sample of `vectorforge up`, with the pages that answer them; tests/quality holds them to it. */
const SAMPLE_QUESTIONS = [
  ["After how many failed calls does the circuit breaker open?", "docs/use/degradation.md"],
  ["Is a dry run of a query logged or stored?", "docs/use/conversations.md"],
  ["How often does a silent stream get a ping?", "docs/use/streams.md"],
];

/** Those whose page has been read; none where other documents are. */
function sampleQuestions() {
  if (!documents.list.length || !documents.list.every((d) => d.metadata?.sample)) return [];
  const isRead = (page) => documents.list.length < documents.total || documents.list.some((d) => d.source.endsWith(page));
  return SAMPLE_QUESTIONS.filter(([, page]) => isRead(page)).map(([question]) => question);
}

const welcome = {
  drawn: null,

  draw() {
    $("welcome").hidden = talk.turns.length > 0 || !$("banner").hidden || !state.ready;
    if ($("welcome").hidden) return;
    const titles = documents.list.slice(0, 3).map((d) => d.title || d.source.split("/").at(-1));
    const key = JSON.stringify([documents.total, titles, sampleQuestions(), currentCollection()?.name]);
    if (this.drawn === key) return;
    this.drawn = key;
    $("welcome").replaceChildren(...(documents.total ? this.ready(titles) : this.first()));
  },

  first() {
    const step = (title, text) => el("li", {}, el("b", {}, title), el("span", {}, text));
    return [el("h1", {}, "Ask your own documents"),
      el("p", { class: "lead" }, "Every answer shows the passages it rests on, so you can check it where it was written."),
      dropButton("Drop documents here", `or choose files. ${FORMATS}.`),
      el("ol", { class: "steps" },
        step("Add", "Drop a handful of files. They are cut into passages and indexed in seconds."),
        step("Ask", "“What changed in the March contract?” beats “contract”: ask as you would ask a colleague."),
        step("Check", "Select a number in the answer to see its passage highlighted in the source."))];
  },

  ready(titles) {
    const short = (title) => (title.length > 60 ? title.slice(0, 57) + "…" : title);
    const ofSample = sampleQuestions();
    const questions = ofSample.length ? ofSample : titles.map((t) => `What is “${short(t)}” about?`);
    return [el("h1", {}, nameWorthSaying() ? `Ask “${nameWorthSaying()}”` : "Ask your documents"),
      el("p", { class: "lead" }, `${plural(documents.total, "document")} to answer from. Numbers in an answer open the passage in its source.`),
      questions.length ? el("div", { class: "try" }, el("h2", {}, "For example"), el("ul", {}, ...questions.map((q) => el("li", {}, el("button", { type: "button", onclick: () => talk.ask(q) }, q, icon("right")))))) : null].filter(Boolean);
  },
};
