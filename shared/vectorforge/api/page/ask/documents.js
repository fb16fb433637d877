"use strict";
// ---------------------------------------------------------------- the panel: documents, or one document
const panel = {
  view: null, opener: null,

  open(view, opener) {
    const wasOpen = this.view !== null;
    this.view = view;
    if (opener && !$("panel").contains(opener)) this.opener = opener;
    $("panel").hidden = false;
    $("frame").classList.add("open");
    this.drawToggles();
    this.fit();
    if (!wasOpen || opener) requestAnimationFrame(() => $("panel-title")?.focus({ preventScroll: true }));
  },

  close() {
    if (this.view === null) return;
    this.view = null;
    source.current = null;
    markCurrent();
    $("panel").hidden = true;
    $("frame").classList.remove("open");
    this.drawToggles();
    this.fit();
    (this.opener?.isConnected ? this.opener : $("question")).focus({ preventScroll: true });
    this.opener = null;
  },

  drawToggles() {
    for (const view of ["documents", "conversations"]) $(`toggle-${view}`).setAttribute("aria-expanded", String(this.view === view));
  },

  /** Puts nodes into the body; the focus stays on the button of the same place. */
  fill(nodes) {
    const body = $("panel-body"), buttons = () => [...body.querySelectorAll("button")];
    const focused = body.contains(document.activeElement) ? buttons().indexOf(document.activeElement) : -1;
    delete body.dataset.document;
    body.replaceChildren(...nodes);
    if (focused >= 0) (buttons()[focused] ?? $("panel-title")).focus({ preventScroll: true });
  },

  /** A sheet over the page is a dialog; a column beside it is complementary. */
  fit() {
    const modal = this.view !== null && narrow.matches;
    for (const id of ["bar", "talk"]) $(id).inert = modal;
    $("panel").setAttribute("role", modal ? "dialog" : "complementary");
    if (modal) $("panel").setAttribute("aria-modal", "true"); else $("panel").removeAttribute("aria-modal");
  },

  head(...children) { $("panel").querySelector(".head").replaceChildren(...children); },
  /** The head of a view with a title. */
  titled(title) { this.head(el("div", { class: "tools" }, el("h2", { id: "panel-title", tabindex: "-1" }, title), this.closeButton())); },
  closeButton() {
    return iconButton("close", T.close, () => panel.close());
  },
};

const stageText = (stage, fallback) => T.stages[stage] ?? (stage ? stage[0].toUpperCase() + stage.slice(1) : fallback);

function dropButton(title, hint) {
  return el("button", { class: "drop", type: "button", onclick: () => $("files").click() },
    icon("drop"), el("span", {}, el("b", {}, title), el("span", {}, hint)));
}

const documents = {
  list: [], total: 0, languageNote: null, problem: null, loading: false, loadedFor: null,
  uploads: [],  // {name, state: waiting|sending|working|done|unchanged|failed, text, share, collectionId}

  async reload() {
    const id = state.collectionId;
    this.loadedFor = id;
    this.problem = null;
    if (!id) { this.list = []; this.total = 0; this.draw(); return; }
    this.loading = true;
    try {
      const page = await getJson(`/v1/collections/${encodeURIComponent(id)}/documents?limit=50&offset=0`);
      if (state.collectionId !== id) return;
      this.list = page.documents;
      this.languageNote = page.language_note;
      this.setTotal(page.total);
    } catch (error) {
      if (state.collectionId !== id) return;
      this.list = [];
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

  async more() {
    const id = state.collectionId;
    const page = await getJson(`/v1/collections/${encodeURIComponent(id)}/documents?limit=50&offset=${this.list.length}`);
    if (state.collectionId !== id) return;
    const known = new Set(this.list.map((d) => d.id));
    this.list = [...this.list, ...page.documents.filter((d) => !known.has(d.id))];
    this.languageNote ??= page.language_note;
    this.setTotal(page.total);
    this.draw();
  },

  open(opener) {
    source.current = null;
    markCurrent();
    panel.open("documents", opener);
    this.drawAll();
  },

  drawAll() {
    panel.titled(T.documents);
    $("panel-body").scrollTop = 0;
    this.draw();
  },

  draw() {
    welcome.draw();
    if (panel.view !== "documents") return;
    const nodes = [dropButton(T.addDocuments, T.addHint(T.formats))];
    const own = this.uploads.filter((u) => u.collectionId === state.collectionId);
    if (own.length) nodes.push(...this.uploadNodes(own));
    if (this.problem) nodes.push(el("p", { class: "quiet" }, this.problem), textButton(T.tryAgain, () => this.reload()));
    else if (this.list.length) {
      nodes.push(el("h3", {}, counted(this.total, "document")));
      if (this.languageNote) nodes.push(el("p", { class: "quiet", id: "language-note" }, this.languageNote));
      nodes.push(el("ul", { class: "rows", id: "document-list" }, ...this.list.map((d) => this.row(d))));
      if (this.list.length < this.total) nodes.push(textButton(T.showMore, () => this.more().catch((e) => announce(e.message))));
    } else if (!this.loading && !own.length) nodes.push(el("p", { class: "quiet" }, T.nothingHere));
    if (currentCollection()) nodes.push(el("p", { class: "tail" }, textButton(T.newCollection, newCollection), textButton(T.renameCollection, renameCollection), textButton(T.deleteCollection, deleteCollection)));
    panel.fill(nodes);
  },

  row(document_) {
    const name = sourceName(document_);
    const facts = [counted(document_.chunk_count ?? 0, "passage"), document_.title && document_.title !== document_.source ? document_.source : null].filter(Boolean);
    return el("li", {},
      el("div", { class: "title" }, el("button", { type: "button", onclick: (event) => source.open([{ document_id: document_.id, title: document_.title, document_source: document_.source }], 0, event.currentTarget) }, name)),
      iconButton("bin", `${T.remove} ${name}`, () => this.remove(document_)),
      el("div", { class: "sub one" }, facts.join(" · ")));
  },

  async remove(document_) {
    const name = sourceName(document_);
    if (!await confirmDelete(name, T.deleteDocumentText(document_.chunk_count ?? 0))) return;
    try {
      await getJson(`/v1/documents/${encodeURIComponent(document_.id)}`, { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) { showBanner(T.notDeleted(name, error.message)); return; }
    }
    this.list = this.list.filter((d) => d.id !== document_.id);
    this.setTotal(Math.max(0, this.total - 1));
    this.draw();
    announce(T.deleted(name));
  },

  uploadNodes(own) {
    const finished = own.filter((u) => ["done", "unchanged", "failed"].includes(u.state));
    const failed = own.filter((u) => u.state === "failed").length;
    const summary = finished.length < own.length ? T.addingOf(finished.length + 1, own.length)
      : failed ? T.addedOf(own.length - failed, own.length) : T.filesAdded(own.length);
    const head = el("h3", {}, el("span", {}, summary));
    if (finished.length) head.append(textButton(T.clear, () => { this.uploads = this.uploads.filter((u) => !finished.includes(u)); this.draw(); }));
    return [head, el("ul", { class: "rows", id: "uploads" }, ...own.map((u) => {
      const row = el("li", { "data-state": u.state }, el("div", { class: "title" }, el("span", {}, u.name)));
      row.append(el("div", { class: "sub" + (u.state === "failed" ? " bad" : u.state === "done" ? " good" : "") }, u.text));
      if (["sending", "working"].includes(u.state)) row.append(progressBar(u));
      return row;
    }))];
  },

  update(uploads, change) {
    const before = JSON.stringify(uploads);
    for (const u of uploads) Object.assign(u, typeof change === "function" ? change(u) : change);
    if (JSON.stringify(uploads) !== before) this.draw();  // a rebuilt row would start its animation again
  },

  /** files: [{name, blob}]. Sends them in batches one after the other, then watches their jobs. */
  async add(files) {
    if (!files.length) return;
    if (!state.collectionId) {
      try { await createCollection("default"); }
      catch (error) { showBanner(T.notAdded(error.message)); return; }
    }
    const collectionId = state.collectionId;
    const uploads = files.map((file) => ({ ...file, state: "waiting", text: T.waiting, share: 0, collectionId }));
    this.uploads.push(...uploads);
    if (panel.view === "documents") this.draw(); else this.open(document.activeElement === document.body ? $("question") : document.activeElement);
    announce(T.adding(files.length));
    for (const batch of batches(uploads)) await this.send(batch, collectionId);
  },

  async send(batch, collectionId) {
    this.update(batch, { state: "sending", text: T.uploading, share: 0 });
    let job;
    try {
      job = await upload(`/v1/collections/${encodeURIComponent(collectionId)}/documents`, batch, (share) => {
        this.update(batch, { share, text: share < 1 ? T.percent(Math.floor(share * 100)) : T.uploaded });
      });
    } catch (error) {
      if (batch.length > 1 && [413, 422].includes(error.status)) {  // one bad file must not keep the others out
        for (const one of batch) await this.send([one], collectionId);
        return;
      }
      this.update(batch, { state: "failed", text: error.message, blob: null });
      announce(T.uploadFailed(error.message));
      return;
    }
    this.update(batch, { state: "working", text: T.waiting, blob: null });
    this.watch(job, batch);
  },

  /** Polls a job until it ends: often while it moves, rarely while it does not. */
  async watch(job, batch) {
    let delay = 300, failures = 0, last = "";
    for (;;) {
      const items = Array.isArray(job.documents) ? job.documents : [];
      const over = ["succeeded", "partial", "failed"].includes(job.status);
      this.update(batch, (u) => progressOf(u, items.length === batch.length ? items[batch.indexOf(u)] : items.find((i) => i.source === u.name), job, over));
      if (over) break;
      const now = JSON.stringify([job.stage, job.documents_done, items.map((i) => [i.status, i.stage])]);
      delay = now === last ? Math.min(delay * 1.5, 4000) : 300;
      last = now;
      await pause(delay);
      try {
        job = await getJson(`/v1/jobs/${encodeURIComponent(job.id)}`);
        failures = 0;
      } catch (error) {
        failures += 1;
        if ([401, 403, 404].includes(error.status) || failures > 8) {
          this.update(batch.filter((u) => u.state === "working"), { state: "failed", text: T.progressUnknown(error.message) });
          return;
        }
        delay = Math.min(500 * 2 ** failures, 8000);
        last = "";
        await pause(delay);
      }
    }
    const failed = batch.filter((u) => u.state === "failed").length;
    announce(failed ? T.filesFailed(failed) : T.filesAdded(batch.length));
    if (batch[0]?.collectionId === state.collectionId) await this.reload();
  },

  /** Jobs that were running when the page was opened are watched too. */
  async resumeJobs() {
    const id = state.collectionId;
    if (!id) return;
    try {
      const { jobs } = await getJson(`/v1/jobs?collection_id=${encodeURIComponent(id)}&limit=20`);
      const watched = new Set(this.uploads.map((u) => u.jobId));
      for (const listed of jobs) {
        if (!["queued", "running"].includes(listed.status) || watched.has(listed.id)) continue;
        const job = await getJson(`/v1/jobs/${encodeURIComponent(listed.id)}`);
        const batch = (job.documents ?? []).map((item) => ({ name: item.source, state: "working", text: T.waiting, collectionId: id, jobId: job.id }));
        this.uploads.push(...batch);
        this.watch(job, batch);
      }
    } catch { /* an extra; the documents list shows any real problem */ }
  },
};

function progressBar(file) {
  const known = file.state === "sending" && file.share < 1, bar = el("i");
  if (known) bar.style.transform = `scaleX(${file.share})`;
  return el("div", { class: "track" + (known ? "" : " moving"), role: "progressbar", "aria-label": file.name, "aria-valuetext": file.text,
    "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": known ? Math.round(file.share * 100) : null }, bar);
}

function progressOf(file, item, job, over) {
  const jobId = job.id;
  if (["done", "unchanged", "failed"].includes(file.state)) return { jobId };
  const chunks = item?.chunks_added ?? 0;
  if (item?.status === "succeeded") return { jobId, state: "done", text: T.addedPassages(chunks + (item.chunks_kept ?? 0)) };
  if (item?.status === "unchanged") return { jobId, state: "unchanged", text: T.upToDate };
  if (item?.status === "failed" || (over && job.status !== "succeeded")) {
    const reason = item?.error?.message ?? (typeof job.error === "string" ? job.error : job.error?.message);
    return { jobId, state: "failed", text: reason || T.couldNotAdd };
  }
  if (over) return { jobId, state: "done", text: T.added };
  const text = stageText(item?.stage ?? (item?.status === "running" ? job.stage : item?.status ?? job.stage), T.waiting);
  return { jobId, state: "working", text: chunks ? T.stageOf(text, chunks) : text };
}

/** At most 20 files and 40 MB a request: for visible progress within the server's body limit. */
function* batches(files) {
  let batch = [], bytes = 0;
  for (const file of files) {
    if (batch.length && (batch.length === 20 || bytes + file.blob.size > 40e6)) { yield batch; batch = []; bytes = 0; }
    batch.push(file);
    bytes += file.blob.size;
  }
  if (batch.length) yield batch;
}
