"use strict";
// ---- stored conversations: their addresses, their list
const conversations = new class extends PanelList {
  view = "conversations";
  id = null;  // of the one in view; null until its first question
  isStored = true;  // false: the server has no place for it, so earlier messages are sent with each question
  changes = 0;

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
  }

  /** The address has the conversation's id, so that a reload or a bookmark opens it. */
  show(id, how) {
    this.id = id;
    const address = location.pathname + (id ? url`?conversation=${id}` : "");
    if (how && address !== location.pathname + location.search) history[how](null, "", address);
    this.draw();
  }

  begin(how = "pushState") {
    this.changes += 1;
    this.isStored = true;
    this.show(null, how);
    talk.clear();
    announce(T.newConversation);
    $("question").focus();
  }

  /** Shows the conversation of the address, or an empty one. */
  fromAddress() {
    const id = new URLSearchParams(location.search).get("conversation");
    if (id && id !== this.id) return this.read(id, null);
    if (!id && this.id) this.begin(null);
    return null;
  }

  async read(id, how = "pushState") {
    const change = ++this.changes;
    let shown;
    try {
      shown = await getJson(url`/v1/conversations/${id}?sources=true`);
    } catch (error) {
      if (change === this.changes) showBanner([404, 422].includes(error.status) ? T.conversationGone : T.conversationsFailed(error.message), error.isPassing && (() => this.read(id, how)));
      return;
    }
    if (change !== this.changes) return;
    talk.clear();
    this.isStored = true;
    this.show(id, how);
    talk.restore(shown);
    announce(T.conversationOpened(shown.title));
    if (narrow.matches && panel.view === this.view) panel.close();
  }

  /** One that was deleted or is full takes no more questions: the next one begins another. */
  answered(turn) {
    if (turn.phase === "failed" && [404, 409].includes(turn.problem.status)) this.show(null, "replaceState");
    if (panel.view === this.view) this.load();
  }

  // ---- the list
  open(opener) {
    super.open(opener);
    this.load();
  }

  async page(offset) {
    const { conversations: items } = await getJson(`/v1/conversations?own=true&limit=${PAGE_SIZE}&offset=${offset}`);
    return { items, hasMore: items.length === PAGE_SIZE };
  }

  draw() {
    if (panel.view !== this.view) return;
    const begun = this.items.filter((one) => one.message_count || one.id === this.id);
    panel.fill(this.nodes(begun.map((one) => this.rowOf(one)), T.noConversations));
  }

  rowOf(one) {
    const name = one.title || T.untitled, isOpen = one.id === this.id;
    return this.row(el("button", { "aria-current": isOpen && "true", onclick: () => { if (one.id !== this.id) this.read(one.id); } }, name),
      [iconButton("edit", `${T.rename} ${name}`, () => this.rename(one)), iconButton("bin", `${T.remove} ${name}`, () => this.erase(one.id, name))],
      new Date(one.updated_at).toLocaleString(language, { dateStyle: "medium", timeStyle: "short" }));
  }

  rename(one) {
    return askName({ title: T.renameConversation, value: one.title, button: T.rename, save: async (title) => {
      Object.assign(one, await getJson(url`/v1/conversations/${one.id}`, { method: "PATCH", json: { title } }));
      this.draw();
    } });
  }

  async erase(id, name) {
    if (!await erased(name, T.deleteConversationText, url`/v1/conversations/${id}`)) return;
    this.remove(id);
    if (id === this.id) this.begin("replaceState");
  }
}();
