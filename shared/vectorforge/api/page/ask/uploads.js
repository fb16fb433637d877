"use strict";
// ---- files on their way into a collection
const isOver = ({ state: now }) => ["done", "unchanged", "failed"].includes(now);

const uploads = {
  list: [],  // {name, state: waiting|sending|working|done|unchanged|failed, text, share, collectionId, jobId}

  nodes(own) {
    const over = own.filter(isOver).length, failed = own.filter((one) => one.state === "failed").length;
    const summary = over < own.length ? T.addingOf(over + 1, own.length) : failed ? T.addedOf(own.length - failed, own.length) : T.filesAdded(own.length);
    const clear = () => { this.list = this.list.filter((one) => !own.includes(one) || !isOver(one)); documents.draw(); };
    return [el("h3", el("span", summary), over > 0 && textButton(T.clear, clear)), el("ul.rows", { id: "uploads" }, own.map((one) => this.row(one)))];
  },

  row({ name, state: now, text, share }) {
    return el("li", { "data-state": now }, el("div.title", el("span", name)), el("div.sub", text),
      ["sending", "working"].includes(now) && el("progress", { "aria-label": name, "aria-valuetext": text, value: now === "sending" && share < 1 && share }));
  },

  update(batch, change) {
    const before = JSON.stringify(batch);
    for (const one of batch) Object.assign(one, typeof change === "function" ? change(one) : change);
    if (JSON.stringify(batch) !== before) documents.draw();  // a rebuilt row would start its animation again
  },

  /** files: [{name, blob}]. Sends them in batches one after the other, then watches their jobs. */
  async add(files) {
    if (!files.length) return;
    if (!state.collectionId) {
      try { await createCollection("default"); }
      catch (error) { showBanner(T.notAdded(error.message)); return; }
    }
    const added = files.map((file) => ({ ...file, state: "waiting", text: T.waiting, share: 0, collectionId: state.collectionId }));
    this.list.push(...added);
    if (panel.view === "documents") documents.draw(); else documents.open(document.activeElement === document.body ? $("question") : document.activeElement);
    announce(T.adding(files.length));
    for (const batch of batches(added)) await this.send(batch);
  },

  async send(batch) {
    this.update(batch, { state: "sending", text: T.uploading, share: 0 });
    const body = new FormData();
    for (const { blob, name } of batch) body.append("files", blob, name);
    const onProgress = (share) => this.update(batch, { share, text: share < 1 ? T.percent(Math.floor(share * 100)) : T.uploaded });
    try {
      const job = await getJson(url`/v1/collections/${batch[0].collectionId}/documents`, { body, onProgress });
      this.update(batch, { state: "working", text: T.waiting, blob: null });
      this.watch(job, batch);
    } catch (error) {
      if (batch.length > 1 && [413, 422].includes(error.status)) {  // one bad file must not keep the others out
        for (const one of batch) await this.send([one]);
        return;
      }
      this.update(batch, { state: "failed", text: error.message, blob: null });
      announce(T.uploadFailed(error.message));
    }
  },

  /** Polls a job until it ends: often while it moves. */
  async watch(job, batch) {
    for (let delay = 300, failures = 0, last = ""; ;) {
      const items = job.documents ?? [], over = ["succeeded", "partial", "failed"].includes(job.status);
      this.update(batch, (one) => progressOf(one, items.length === batch.length ? items[batch.indexOf(one)] : items.find((item) => item.source === one.name), job, over));
      if (over) break;
      const now = JSON.stringify([job.stage, items.map((item) => [item.status, item.stage])]);
      delay = failures ? Math.min(500 * 2 ** failures, 8000) : now === last ? Math.min(delay * 1.5, 4000) : 300;
      last = now;
      await pause(delay);
      try {
        job = await getJson(url`/v1/jobs/${job.id}`);
        failures = 0;
      } catch (error) {
        if (++failures <= 8 && ![401, 403, 404].includes(error.status)) continue;
        this.update(batch.filter((one) => one.state === "working"), { state: "failed", text: T.progressUnknown(error.message) });
        return;
      }
    }
    const failed = batch.filter((one) => one.state === "failed").length;
    announce(failed ? T.filesFailed(failed) : T.filesAdded(batch.length));
    if (batch[0]?.collectionId === state.collectionId) await documents.load();
  },

  /** Watches jobs that run already. */
  async resumeJobs() {
    const { collectionId } = state;
    if (!collectionId) return;
    try {
      const { jobs } = await getJson(url`/v1/jobs?collection_id=${collectionId}&limit=20`);
      while (this.list.some((one) => one.blob)) await pause(300);  // uploads may have started these jobs
      const watched = new Set(this.list.map((one) => one.jobId));
      for (const { id, status } of jobs) {
        if (!["queued", "running"].includes(status) || watched.has(id)) continue;
        const job = await getJson(url`/v1/jobs/${id}`);
        const batch = (job.documents ?? []).map((item) => ({ name: item.source, state: "working", text: T.waiting, collectionId, jobId: id }));
        this.list.push(...batch);
        this.watch(job, batch);
      }
    } catch { /* the list shows any real problem */ }
  },
};

function progressOf(file, item, job, over) {
  const jobId = job.id, { status, chunks_added: added = 0, chunks_kept: kept = 0 } = item ?? {};
  if (isOver(file)) return { jobId };
  if (status === "succeeded") return { jobId, state: "done", text: T.addedPassages(added + kept) };
  if (status === "unchanged") return { jobId, state: "unchanged", text: T.upToDate };
  if (status === "failed" || (over && job.status !== "succeeded")) return { jobId, state: "failed", text: item?.error?.message ?? job.error?.message ?? job.error ?? T.couldNotAdd };
  if (over) return { jobId, state: "done", text: T.added };
  const stage = item?.stage ?? (status && status !== "running" ? status : job.stage), text = T.stages[stage] ?? T.waiting;
  return { jobId, state: "working", text: added ? T.stageOf(text, added) : text };
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
