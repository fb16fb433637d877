"use strict";
// ---------------------------------------------------------------- rating an answer
/** Pauses before further attempts: the record of a query may reach the log a few seconds after the answer. */
const LOG_PAUSES_MS = [1000, 3000, 6000];

/** Thumbs below an ended answer, and reasons after a thumbs-down; null for an answer without an id. */
function feedbackOf({ meta, phase, text, sources }) {
  return meta?.request_id && phase === "answered" && text.trim() ? new FeedbackView(url`/v1/queries/${meta.request_id}/feedback`, sources).node : null;
}

class FeedbackView {
  rating = null; last = Promise.resolve(); state = el("span.rated");

  constructor(path, sources) {
    Object.assign(this, { path, sources });
    this.thumbs = [["up", T.good], ["down", T.bad]].map(([rating, name]) => el("button.thumb", {
      "data-rating": rating, "aria-label": name, title: name, "aria-pressed": "false", onclick: () => this.choose(rating),
    }, icon("thumb")));
    this.node = el("div.feedback", { role: "group", "aria-label": T.rate }, this.thumbs, this.state);
  }

  /** The pressed thumb again takes the rating back. */
  choose(rating) {
    this.rating = this.rating === rating ? null : rating;
    for (const thumb of this.thumbs) thumb.setAttribute("aria-pressed", thumb.dataset.rating === this.rating);
    this.form?.remove();
    this.form = this.rating === "down" ? this.reasons() : null;
    if (this.form) this.node.append(this.form);
    this.send();
  }

  reasons() {
    const box = (group, value, name) => el("label", el("input", { type: "checkbox", name: group, value }), name);
    const passages = this.sources.filter((item) => item.chunk_id).map((item) => box("should_cite", item.chunk_id, joined(", ", `[${item.number}] ${sourceName(item)}`, item.location_text || headingOf(item))));
    return el("form", { onsubmit: (event) => { event.preventDefault(); this.send(true); } },
      el("fieldset", el("legend", T.wrong), Object.entries(T.reasons).map(([value, name]) => box("reason", value, name))),
      passages.length > 0 && el("fieldset", el("legend", T.shouldCite), passages),
      el("label.comment", T.comment, el("textarea", { name: "comment", rows: 2, maxlength: 2000 })),
      el("button.button", { type: "submit" }, T.sendRating));
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
