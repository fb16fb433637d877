"use strict";
// ---- rating an answer
/** Pauses before further attempts: the record of a query may reach the log a few seconds after the answer. */
const LOG_PAUSES_MS = [1000, 3000, 6000];

/** Thumbs below an ended answer, and reasons after a thumbs-down; null for an answer without an id. */
function feedbackOf({ meta, phase, text, sources }) {
  return meta?.request_id && phase === "answered" && text.trim() ? new FeedbackView(url`/v1/queries/${meta.request_id}/feedback`, sources).node : null;
}

class FeedbackView {
  rating = null; last = Promise.resolve();

  constructor(path, sources) {
    Object.assign(this, { path, sources, node: copyOf("feedback", {}) });
    this.thumbs = [...this.node.querySelectorAll(".thumb")];
    this.state = this.node.querySelector(".rated");
    for (const thumb of this.thumbs) thumb.onclick = () => this.choose(thumb.dataset.rating);
  }

  /** The pressed thumb again takes the rating back. */
  choose(rating) {
    this.rating = this.rating === rating ? null : rating;
    for (const thumb of this.thumbs) thumb.ariaPressed = String(thumb.dataset.rating === this.rating);
    this.form?.remove();
    this.form = this.rating === "down" ? this.reasons() : null;
    if (this.form) this.node.append(this.form);
    this.send();
  }

  reasons() {
    const passages = this.sources.filter((item) => item.chunk_id).map((item) => el("label", el("input", { type: "checkbox", name: "should_cite", value: item.chunk_id }),
      joined(", ", `[${item.number}] ${sourceName(item)}`, item.location_text || headingOf(item))));
    const form = copyOf("reasons", { ".passages": passages.length > 0 && passages });
    form.onsubmit = (event) => { event.preventDefault(); this.send(true); };
    return form;
  }

  /** Ratings are sent one after the other, so that the last one stays. */
  send(isFinal = false) {
    const { rating, form } = this, data = form && new FormData(form);
    const json = { rating, reasons: data?.getAll("reason") ?? [], comment: data?.get("comment") ?? "" };
    if (data?.has("should_cite")) json.should_cite = data.getAll("should_cite");
    this.state.textContent = T.sending;
    const say = (text) => { this.state.textContent = text; announce(text); };
    this.last = this.last.then(() => this.store(rating ? { method: "POST", json } : { method: "DELETE" })).then(() => {
      say(rating === null ? T.withdrawn : T.thanks);
      if (!isFinal || this.form !== form) return;
      form.remove();
      this.thumbs[1].focus();
    }, (error) => say(error instanceof Problem ? error.message : T.notRated));
  }

  async store(options) {
    for (const ms of [...LOG_PAUSES_MS, null]) {
      try {
        return await request(this.path, options);
      } catch (error) {
        if (error.status === 404 && options.method === "DELETE") return null;
        if (error.status !== 404 || ms === null) throw error;
      }
      await pause(ms);
    }
  }
}
