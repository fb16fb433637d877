"use strict";
// ---- the documents of a collection, in the panel
const documents = new class extends PanelList {
  view = "documents"; total = null; languageNote = null;  // total: null until it is known

  async page(offset) {
    if (!state.collectionId) return { items: [], hasMore: false, total: 0 };
    const { documents: items, total, language_note: note } = await getJson(url`/v1/collections/${state.collectionId}/documents?limit=${PAGE_SIZE}&offset=${offset}`);
    return { items, total, hasMore: offset + items.length < total, languageNote: offset ? this.languageNote : note };
  }

  draw() {
    drawCount();
    welcome.draw();
    if (panel.view !== this.view) return;
    const own = uploads.list.filter((one) => one.collectionId === state.collectionId), { items, languageNote } = this;
    panel.fill(copyOf("drop", {}), own.length > 0 && uploads.nodes(own),
      items.length > 0 && el("h3", counted(documentCount(), "document")), items.length > 0 && languageNote && el("p.quiet", { id: "language-note" }, languageNote),
      this.nodes(items.map((one) => this.rowOf(one)), own.length ? "" : T.nothingHere),
      currentCollection() && el("p.tail", textButton(T.newCollection, newCollection), textButton(T.renameCollection, renameCollection), textButton(T.deleteCollection, deleteCollection)));
  }

  rowOf(one) {
    const name = sourceName(one), passage = { document_id: one.id, title: one.title, document_source: one.source };
    return this.row(el("button", { onclick: ({ currentTarget }) => source.open([passage], 0, currentTarget) }, name),
      iconButton("bin", `${T.remove} ${name}`, () => this.erase(one)),
      joined(" · ", counted(one.chunk_count ?? 0, "passage"), name !== one.source && one.source));
  }

  async erase({ id, chunk_count: passages, ...one }) {
    if (!await erased(sourceName(one), T.deleteDocumentText(passages ?? 0), url`/v1/documents/${id}`)) return;
    this.total = Math.max(0, this.total - 1);
    this.remove(id);
  }
}();
