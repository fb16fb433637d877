"use strict";
// ---- the conversation in view
const talk = {
  turns: [],
  following: false,  // true if the end of a growing answer stays in view: once the reader has scrolled there
  get running() { return this.turns.find((turn) => turn.running) ?? null; },

  ask(question) {
    if (this.running || !question) return;
    const turn = new Turn(question, state.collectionId);
    this.add(turn);
    this.start(turn);
  },

  add(turn) {
    this.turns.push(turn);
    $("turns").append(turn.node);
    turn.drawCollection();
    composer.note(turn.question);
  },

  start(turn) {
    this.following = false;
    this.changed();
    turn.head.scrollIntoView();
    announce(T.searchingDocuments);
    turn.run(conversations.memoryOf(turn));
  },

  /** Draws what depends on the turns. */
  changed() {
    welcome.draw();
    controls();
  },

  /** The last five exchanges, as the model should see them where the conversation is not stored. */
  historyBefore(turn) {
    const earlier = this.turns.slice(0, this.turns.indexOf(turn)).filter((one) => ["answered", "stopped"].includes(one.phase) && one.text.trim());
    return earlier.slice(-5).flatMap(({ question, text }) => [{ role: "user", content: question }, { role: "assistant", content: text }]);
  },

  /** Shows a stored conversation. */
  restore({ messages, message_count: count }) {
    messages.forEach((message, index) => {
      const answer = messages[index + 1];
      if (message.role !== "user" || answer?.role !== "assistant") return;
      const turn = new Turn(message.content, message.collection_id);
      this.add(turn);
      turn.restore(answer);
    });
    if (count > messages.length) $("turns").prepend(el("p.quiet", T.earlier));
    const last = this.turns.at(-1);
    if (last && last.collectionId !== state.collectionId && collectionOf(last.collectionId)) chooseCollection(last.collectionId);
    this.changed();
    last?.head.scrollIntoView();
  },

  retry(turn) {
    if (this.running) return;
    turn.reset();
    turn.drawCollection();
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
    announce({ answered: count ? T.complete(count) : T.completeBare, stopped: T.stopped, failed: "" }[turn.phase]);
    conversations.answered(turn);
    composer.next(turn.phase);
  },

  /** Empties the page; what is running is stopped. */
  clear() {
    this.stop();
    this.turns = [];
    $("turns").replaceChildren();
    composer.unqueue();
    if (panel.view === "source") panel.close();
    this.changed();
  },

  follow() {
    if (this.following) $("scroll").scrollTop = $("scroll").scrollHeight;
    this.drawLatest();
  },

  scrolled() {
    const turn = this.turns.at(-1);
    const overflows = turn && turn.tail.getBoundingClientRect().bottom - turn.head.getBoundingClientRect().top > $("scroll").clientHeight;
    this.following = Boolean(overflows) && this.below() < 48;
    this.drawLatest();
  },

  /** Pixels of the conversation below what is in view. */
  below() { return $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight; },

  drawLatest() { $("latest").hidden = !this.turns.length || this.below() < 120; },
};
