"use strict";
// ---------------------------------------------------------------- the conversation
const talk = {
  turns: [],
  following: false,  // whether the end of a growing answer is kept in view: only once the reader went there
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
    for (const picture of $("turns").querySelectorAll(".evidence[open]")) picture.open = false;
    this.following = false;
    welcome.draw();
    controls();
    $("scroll").scrollTop = this.turns[0] === turn ? 0 : $("scroll").scrollTop + turn.head.getBoundingClientRect().top - $("scroll").getBoundingClientRect().top - 28;
    announce("Searching your documents.");
    turn.run(history);
  },

  /** The last five exchanges about this collection, as the model should see them. */
  historyBefore(turn) {
    const earlier = this.turns.slice(0, this.turns.indexOf(turn)).filter((t) => t.collectionId === turn.collectionId && ["answered", "stopped"].includes(t.phase) && t.text.trim());
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
const welcome = {
  drawn: null,

  draw() {
    $("welcome").hidden = talk.turns.length > 0 || !$("banner").hidden || !state.ready;
    if ($("welcome").hidden) return;
    const titles = documents.list.slice(0, 3).map((d) => d.title || d.source.split("/").at(-1));
    const key = JSON.stringify([documents.total, titles, currentCollection()?.name]);
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
    const questions = [...titles.slice(0, 2).map((t, index) => (index ? `Which points does “${short(t)}” make?` : `What is “${short(t)}” about?`)), "What do these documents disagree on?"];
    const choose = (question) => () => { $("question").value = question; grow(); controls(); $("question").focus(); };
    return [el("h1", {}, nameWorthSaying() ? `Ask “${nameWorthSaying()}”` : "Ask your documents"),
      el("p", { class: "lead" }, `${plural(documents.total, "document")} to answer from. Numbers in an answer open the passage in its source.`),
      el("div", { class: "try" }, el("h2", {}, "For example"), el("ul", {}, ...questions.map((q) => el("li", {}, el("button", { type: "button", onclick: choose(q) }, q, icon("right"))))))];
  },
};
