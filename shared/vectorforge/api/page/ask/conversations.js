"use strict";
// ---- stored conversations: their addresses, their list
const CONVERSATIONS_PAGE = 50;

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
    const address = location.pathname + (id ? url`?conversation=${id}` : "");
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
      shown = await getJson(url`/v1/conversations/${id}?sources=true`);
    } catch (error) {
      if (change === this.changes) showBanner([404, 422].includes(error.status) ? T.conversationGone : T.conversationsFailed(error.message), error.isPassing && (() => this.open(id, how)));
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
    if (count > messages.length) $("turns").prepend(el("p.quiet", T.earlier));
    const last = talk.turns.at(-1);
    if (last && last.collectionId !== state.collectionId && collectionOf(last.collectionId)) chooseCollection(last.collectionId);
    talk.changed();
    last?.head.scrollIntoView();
  },

  /** One that was deleted or is full takes no more questions: the next one begins another. */
  answered(turn) {
    if (turn.phase === "failed" && [404, 409].includes(turn.problem.status)) this.show(null, "replaceState");
    if (panel.view === "conversations") this.load();
  },

  // ---- the list
  openList(opener) {
    panel.list("conversations", T.conversations, opener);
    this.draw();
    this.load();
  },

  async load(offset = 0) {
    try {
      const { conversations: page } = await getJson(`/v1/conversations?own=true&limit=${CONVERSATIONS_PAGE}&offset=${offset}`);
      const before = this.list.slice(0, offset);
      this.list = [...before, ...page.filter((one) => !before.some((known) => known.id === one.id))];
      this.isWhole = page.length < CONVERSATIONS_PAGE;
      this.problem = null;
    } catch (error) {
      this.problem = error.message;
    }
    this.draw();
  },

  draw() {
    if (panel.view !== "conversations") return;
    const begun = this.list.filter((one) => one.message_count || one.id === this.id);
    panel.fill(
      this.problem ? [el("p.quiet", this.problem), textButton(T.tryAgain, () => this.load())]
        : begun.length ? el("ul.rows", { id: "conversation-list" }, begun.map((one) => this.row(one))) : el("p.quiet", T.noConversations),
      !this.isWhole && this.list.length > 0 && textButton(T.showMore, () => this.load(this.list.length)));
  },

  row(one) {
    const name = one.title || T.untitled, isOpen = one.id === this.id;
    return rowOf(el("button", { "aria-current": isOpen && "true", onclick: () => { if (one.id !== this.id) this.open(one.id); } }, name),
      [iconButton("edit", `${T.rename} ${name}`, () => this.rename(one)), iconButton("bin", `${T.remove} ${name}`, () => this.remove(one.id, name))],
      new Date(one.updated_at).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" }));
  },

  rename(one) {
    return askName({ title: T.renameConversation, value: one.title, button: T.rename, save: async (title) => {
      Object.assign(one, await getJson(url`/v1/conversations/${one.id}`, { method: "PATCH", json: { title } }));
      this.draw();
    } });
  },

  async remove(id, name) {
    if (!await erased(name, T.deleteConversationText, url`/v1/conversations/${id}`)) return;
    this.list = this.list.filter((other) => other.id !== id);
    if (id === this.id) this.begin("replaceState"); else this.draw();
  },
};
