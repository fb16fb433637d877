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
    $("toggle-documents").setAttribute("aria-expanded", String(view === "documents"));
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
    $("toggle-documents").setAttribute("aria-expanded", "false");
    this.fit();
    (this.opener?.isConnected ? this.opener : $("question")).focus({ preventScroll: true });
    this.opener = null;
  },

  /** A sheet over the page is a dialog; a column beside it is complementary. */
  fit() {
    const modal = this.view !== null && narrow.matches;
    for (const id of ["bar", "talk"]) $(id).inert = modal;
    $("panel").setAttribute("role", modal ? "dialog" : "complementary");
    if (modal) $("panel").setAttribute("aria-modal", "true"); else $("panel").removeAttribute("aria-modal");
  },

  head(...children) { $("panel").querySelector("header").replaceChildren(...children); },
  closeButton() {
    return el("button", { class: "icon", type: "button", "aria-label": "Close panel", title: "Close", onclick: () => panel.close() }, icon("close"));
  },
};

const FORMATS = "Markdown, text, HTML, PDF, Word, PowerPoint, Excel, EPUB, mail, notebooks, CSV, JSON, ZIP";
const STAGES = {
  queued: "Waiting", extract: "Reading", extracting: "Reading", chunk: "Cutting into passages", chunking: "Cutting into passages",
  embed: "Embedding", embedding: "Embedding", store: "Storing", storing: "Storing",
};
const stageText = (stage, fallback) => STAGES[stage] ?? (stage ? stage[0].toUpperCase() + stage.slice(1) : fallback);

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
    panel.head(el("div", { class: "tools" }, el("h2", { id: "panel-title", tabindex: "-1" }, "Documents"), panel.closeButton()));
    $("panel-body").scrollTop = 0;
    this.draw();
  },

  draw() {
    welcome.draw();
    if (panel.view !== "documents") return;
    const body = $("panel-body"), nodes = [dropButton("Add documents", `Drop files anywhere, or choose them. ${FORMATS}.`)];
    const own = this.uploads.filter((u) => u.collectionId === state.collectionId);
    if (own.length) nodes.push(...this.uploadNodes(own));
    if (this.problem) nodes.push(el("p", { class: "quiet" }, this.problem), el("button", { class: "text-button", type: "button", onclick: () => this.reload() }, "Try again"));
    else if (this.list.length) {
      nodes.push(el("h3", {}, plural(this.total, "document")));
      if (this.languageNote) nodes.push(el("p", { class: "quiet", id: "language-note" }, this.languageNote));
      nodes.push(el("ul", { class: "rows", id: "document-list" }, ...this.list.map((d) => this.row(d))));
      if (this.list.length < this.total) nodes.push(el("button", { class: "text-button", type: "button", onclick: () => this.more().catch((e) => announce(e.message)) }, "Show more"));
    } else if (!this.loading && !own.length) nodes.push(el("p", { class: "quiet" }, "Nothing here yet."));
    if (apiKey) nodes.push(el("p", { class: "keyless" }, el("button", { class: "text-button", type: "button", onclick: () => { setKey(null); location.reload(); } }, "Forget the API key")));
    const focused = body.contains(document.activeElement) ? [...body.querySelectorAll("button")].indexOf(document.activeElement) : -1;
    body.replaceChildren(...nodes);
    if (focused >= 0) (body.querySelectorAll("button")[focused] ?? $("panel-title")).focus({ preventScroll: true });
  },

  row(document_) {
    const name = sourceName(document_);
    const facts = [plural(document_.chunk_count ?? 0, "passage"), document_.title && document_.title !== document_.source ? document_.source : null].filter(Boolean);
    return el("li", {},
      el("div", { class: "title" }, el("button", { type: "button", onclick: (event) => source.open([{ document_id: document_.id, title: document_.title, document_source: document_.source }], 0, event.currentTarget) }, name)),
      el("button", { class: "icon", type: "button", "aria-label": `Delete ${name}`, title: "Delete", onclick: () => this.remove(document_) }, icon("bin")),
      el("div", { class: "sub one" }, facts.join(" · ")));
  },

  async remove(document_) {
    const name = sourceName(document_);
    if (!await confirmDelete(`Delete “${name}”?`, `Its ${plural(document_.chunk_count ?? 0, "passage")} will not be found any more. Answers on this page stay as they are.`)) return;
    try {
      await getJson(`/v1/documents/${encodeURIComponent(document_.id)}`, { method: "DELETE" });
    } catch (error) {
      if (error.status !== 404) { showBanner(`${name} could not be deleted. ${error.message}`); return; }
    }
    this.list = this.list.filter((d) => d.id !== document_.id);
    this.setTotal(Math.max(0, this.total - 1));
    this.draw();
    announce(`${name} deleted.`);
  },

  uploadNodes(own) {
    const finished = own.filter((u) => ["done", "unchanged", "failed"].includes(u.state));
    const failed = own.filter((u) => u.state === "failed").length;
    const summary = finished.length < own.length ? `Adding ${finished.length + 1} of ${own.length}`
      : failed ? `${own.length - failed} of ${own.length} added` : `${plural(own.length, "file")} added`;
    const head = el("h3", {}, el("span", {}, summary));
    if (finished.length) head.append(el("button", { class: "text-button", type: "button", onclick: () => { this.uploads = this.uploads.filter((u) => !finished.includes(u)); this.draw(); } }, "Clear"));
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
      catch (error) { showBanner(`The files could not be added. ${error.message}`); return; }
    }
    const collectionId = state.collectionId;
    const uploads = files.map((file) => ({ ...file, state: "waiting", text: "Waiting", share: 0, collectionId }));
    this.uploads.push(...uploads);
    if (panel.view === "documents") this.draw(); else this.open(document.activeElement === document.body ? $("question") : document.activeElement);
    announce(`Adding ${plural(files.length, "file")}.`);
    for (const batch of batches(uploads)) await this.send(batch, collectionId);
  },

  async send(batch, collectionId) {
    this.update(batch, { state: "sending", text: "Uploading", share: 0 });
    let job;
    try {
      job = await upload(`/v1/collections/${encodeURIComponent(collectionId)}/documents`, batch, (share) => {
        this.update(batch, { share, text: share < 1 ? `Uploading, ${Math.floor(share * 100)} %` : "Uploaded" });
      });
    } catch (error) {
      if (batch.length > 1 && [413, 422].includes(error.status)) {  // one bad file must not keep the others out
        for (const one of batch) await this.send([one], collectionId);
        return;
      }
      this.update(batch, { state: "failed", text: error.message, blob: null });
      announce(`Upload failed. ${error.message}`);
      return;
    }
    this.update(batch, { state: "working", text: "Waiting", blob: null });
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
          this.update(batch.filter((u) => u.state === "working"), { state: "failed", text: `Progress is unknown. ${error.message}` });
          return;
        }
        delay = Math.min(500 * 2 ** failures, 8000);
        last = "";
        await pause(delay);
      }
    }
    const failed = batch.filter((u) => u.state === "failed").length;
    announce(failed ? `${plural(failed, "file")} could not be added.` : `${plural(batch.length, "file")} added.`);
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
        const batch = (job.documents ?? []).map((item) => ({ name: item.source, state: "working", text: "Waiting", collectionId: id, jobId: job.id }));
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
  if (item?.status === "succeeded") return { jobId, state: "done", text: `Added, ${plural(chunks + (item.chunks_kept ?? 0), "passage")}` };
  if (item?.status === "unchanged") return { jobId, state: "unchanged", text: "Already up to date" };
  if (item?.status === "failed" || (over && job.status !== "succeeded")) {
    const reason = item?.error?.message ?? (typeof job.error === "string" ? job.error : job.error?.message);
    return { jobId, state: "failed", text: reason || "Could not be added." };
  }
  if (over) return { jobId, state: "done", text: "Added" };
  const text = stageText(item?.stage ?? (item?.status === "running" ? job.stage : item?.status ?? job.stage), "Waiting");
  return { jobId, state: "working", text: chunks ? `${text}, ${plural(chunks, "passage")}` : text };
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
