"use strict";
// ---- the documents of a collection, in the panel
const documents = {
  list: [], total: 0, languageNote: null, problem: null, loading: false,

  /** Loads the first page of the list, or what follows the pages that are shown. */
  async reload(offset = 0) {
    const id = state.collectionId;
    this.problem = null;
    if (!id) { Object.assign(this, { list: [], total: 0 }); this.draw(); return; }
    this.loading = true;
    try {
      const page = await getJson(url`/v1/collections/${id}/documents?limit=50&offset=${offset}`);
      if (state.collectionId !== id) return;
      const before = this.list.slice(0, offset), known = new Set(before.map((one) => one.id));
      this.list = [...before, ...page.documents.filter((one) => !known.has(one.id))];
      this.languageNote = (offset ? this.languageNote : null) ?? page.language_note;
      this.setTotal(page.total);
    } catch (error) {
      if (state.collectionId !== id) return;
      if (!offset) this.list = [];
      this.problem = error.message;
    }
    this.loading = false;
    this.draw();
  },

  setTotal(total) {
    this.total = state.documentTotal = total;
    drawCount();
    welcome.draw();
  },

  open(opener) {
    panel.list("documents", T.documents, opener);
    this.draw();
  },

  draw() {
    welcome.draw();
    if (panel.view !== "documents") return;
    const own = uploads.list.filter((one) => one.collectionId === state.collectionId), { list, total, problem } = this;
    panel.fill(copyOf("drop", {}), own.length > 0 && uploads.nodes(own),
      list.length > 0 && [el("h3", counted(total, "document")), this.languageNote && el("p.quiet", { id: "language-note" }, this.languageNote),
        el("ul.rows", { id: "document-list" }, list.map((one) => this.row(one)))],
      problem ? [el("p.quiet", problem), textButton(T.tryAgain, () => this.reload())]
        : list.length ? list.length < total && textButton(T.showMore, () => this.reload(list.length))
          : !this.loading && !own.length && el("p.quiet", T.nothingHere),
      currentCollection() && el("p.tail", textButton(T.newCollection, newCollection), textButton(T.renameCollection, renameCollection), textButton(T.deleteCollection, deleteCollection)));
  },

  row(one) {
    const name = sourceName(one), passage = { document_id: one.id, title: one.title, document_source: one.source };
    return rowOf(el("button", { onclick: ({ currentTarget }) => source.open([passage], 0, currentTarget) }, name),
      iconButton("bin", `${T.remove} ${name}`, () => this.remove(one)),
      joined(" · ", counted(one.chunk_count ?? 0, "passage"), one.title && one.title !== one.source && one.source));
  },

  async remove({ id, chunk_count: passages, ...one }) {
    if (!await erased(sourceName(one), T.deleteDocumentText(passages ?? 0), url`/v1/documents/${id}`)) return;
    this.list = this.list.filter((other) => other.id !== id);
    this.setTotal(Math.max(0, this.total - 1));
    this.draw();
  },
};
