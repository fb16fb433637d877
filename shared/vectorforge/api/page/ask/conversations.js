"use strict";
// ---------------------------------------------------------------- stored conversations: their addresses, their list
const CONVERSATIONS_PAGE = 50;
const conversationPath = (id) => `/v1/conversations/${encodeURIComponent(id)}`;

const conversations = {
  id: null,  // of the one in view; null until its first question
  isStored: true,  // false: the server has no place for it, so earlier messages are sent with each question
  list: [], isWhole: false, problem: null, changes: 0,

  /** What a question is asked with, so that the model knows what was said before. */
  async memoryOf(turn) {
    const change = ++this.changes;  // one that is being opened does not replace this question
    if (this.id === null && this.isStored) {
      try {
        const { id } = await getJson("/v1/conversations", { method: "POST" });
        if (change === this.changes) this.show(id, "replaceState");
      } catch (error) {
        if (error.status === 401) throw error;
        if (change === this.changes) this.isStored = false;
        if (error.status === 409) showBanner(T.notStored(error.message));
      }
    }
    if (this.id !== null) return { conversation_id: this.id };
    const messages = talk.historyBefore(turn);
    return messages.length ? { messages } : {};
  },

  /** The address has the conversation's id, so that a reload or a bookmark opens it. */
  show(id, how) {
    this.id = id;
    const address = location.pathname + (id ? `?${new URLSearchParams({ conversation: id })}` : "");
    if (how && address !== location.pathname + location.search) history[how](null, "", address);
    this.draw();
  },

  begin(how = "pushState") {
    this.changes += 1;
    this.isStored = true;
    this.show(null, how);
    talk.clear();
    announce(T.newConversation);
    $("question").focus();
  },

  /** Opens the conversation of the address, if it has one. */
  fromAddress() {
    const id = new URLSearchParams(location.search).get("conversation");
    if (id && id !== this.id) return this.open(id, null);
    if (!id && this.id) this.begin(null);
    return null;
  },

  async open(id, how = "pushState") {
    const change = ++this.changes;
    let shown;
    try {
      shown = await getJson(`${conversationPath(id)}?sources=true`);
    } catch (error) {
      if (change !== this.changes) return;
      showBanner([404, 422].includes(error.status) ? T.conversationGone : T.conversationsFailed(error.message), error.isPassing ? () => this.open(id, how) : null);
      return;
    }
    if (change !== this.changes) return;
    talk.clear();
    this.isStored = true;
    this.show(id, how);
    this.restore(shown);
    announce(T.conversationOpened(shown.title));
    if (narrow.matches && panel.view === "conversations") panel.close();
  },

  restore({ messages, message_count: count }) {
    messages.forEach((message, index) => {
      const answer = messages[index + 1];
      if (message.role !== "user" || answer?.role !== "assistant") return;
      const turn = new Turn(message.content, message.collection_id);
      talk.add(turn);
      turn.restore(answer);
    });
    if (count > messages.length) $("turns").prepend(el("p", { class: "quiet" }, T.earlier));
    const last = talk.turns.at(-1);
    if (last && last.collectionId !== state.collectionId && collectionOf(last.collectionId)) chooseCollection(last.collectionId);
    welcome.draw();
    controls();
    if (last) talk.scrollTo(last);
  },

  /** One that was deleted or is full takes no more questions: the next one begins another. */
  answered(turn) {
    if (turn.phase === "failed" && [404, 409].includes(turn.problem.status)) this.show(null, "replaceState");
    if (panel.view === "conversations") this.load();
  },

  // ---- the list
  toggle(opener) {
    if (panel.view === "conversations") { panel.close(); return; }
    source.current = null;
    markCurrent();
    panel.open("conversations", opener);
    panel.titled(T.conversations);
    this.draw();
    this.load();
  },

  async load(offset = 0) {
    try {
      const { conversations: page } = await getJson(`/v1/conversations?own=true&limit=${CONVERSATIONS_PAGE}&offset=${offset}`);
      this.list = [...this.list.slice(0, offset), ...page.filter((one) => offset === 0 || !this.list.some((known) => known.id === one.id))];
      this.isWhole = page.length < CONVERSATIONS_PAGE;
      this.problem = null;
    } catch (error) {
      this.problem = error.message;
    }
    this.draw();
  },

  draw() {
    if (panel.view !== "conversations") return;
    const nodes = [], begun = this.list.filter((one) => one.message_count || one.id === this.id);
    if (this.problem) nodes.push(el("p", { class: "quiet" }, this.problem), textButton(T.tryAgain, () => this.load()));
    else if (begun.length) nodes.push(el("ul", { class: "rows", id: "conversation-list" }, ...begun.map((one) => this.row(one))));
    else nodes.push(el("p", { class: "quiet" }, T.noConversations));
    if (!this.isWhole && this.list.length) nodes.push(textButton(T.showMore, () => this.load(this.list.length)));
    panel.fill(nodes);
  },

  row(one) {
    const name = one.title || T.untitled, time = new Date(one.updated_at).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" });
    return el("li", {},
      el("div", { class: "title" }, el("button", { type: "button", "aria-current": one.id === this.id ? "true" : null, onclick: () => { if (one.id !== this.id) this.open(one.id); } }, name)),
      el("span", { class: "icons" },
        iconButton("edit", `${T.rename} ${name}`, () => this.rename(one)),
        iconButton("bin", `${T.remove} ${name}`, () => this.remove(one))),
      el("div", { class: "sub one" }, time));
  },

  rename(one) {
    return askName({ title: T.renameConversation, value: one.title, button: T.rename, save: async (title) => {
      Object.assign(one, await getJson(conversationPath(one.id), { method: "PATCH", json: { title } }));
      this.draw();
    } });
  },

  async remove(one) {
    const name = one.title || T.untitled;
    if (!await confirmDelete(name, T.deleteConversationText)) return;
    try {
      await request(conversationPath(one.id), { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) { showBanner(T.notDeleted(name, error.message)); return; }
    }
    this.list = this.list.filter((other) => other.id !== one.id);
    if (one.id === this.id) this.begin("replaceState"); else this.draw();
    announce(T.deleted(name));
  },
};
