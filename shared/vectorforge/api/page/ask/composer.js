"use strict";
// ---------------------------------------------------------------- the query box: earlier questions, the next question, effort
const MAX_EARLIER = 100;

const composer = {
  earlier: [],  // questions, oldest first
  at: null, draft: "",  // which of them is shown, and what was written before
  queued: null,

  set(text) {
    $("question").value = text;
    grow();
    controls();
  },

  note(question) {
    this.earlier = [...this.earlier.filter((one) => one !== question), question].slice(-MAX_EARLIER);
    this.at = null;
  },

  /** Shows the question before or after the one shown; true if there is one. */
  recall(step) {
    if (this.at === null) this.draft = $("question").value;
    const to = (this.at ?? this.earlier.length) + step;
    if (to < 0 || to > this.earlier.length || (this.at === null && step > 0)) return false;
    this.at = to === this.earlier.length ? null : to;
    this.set(this.at === null ? this.draft : this.earlier[to]);
    const end = step < 0 ? 0 : $("question").value.length;
    $("question").setSelectionRange(end, end);
    return true;
  },

  submit() {
    const question = $("question").value.trim();
    if (!question) return;
    if (talk.running && this.queued) { announce(T.queueFull); return; }
    this.at = null;
    if (talk.running) this.queued = question;
    this.set("");
    if (this.queued) announce(T.isQueued); else talk.ask(question);
    this.draw();
  },

  draw() {
    $("queue").hidden = !this.queued;
    $("queue").replaceChildren(...(this.queued ? [el("span", {}, T.queued, el("b", {}, this.queued)), iconButton("close", T.unqueue, () => { this.unqueue(); $("question").focus(); })] : []));
    controls();
  },

  /** Takes the queued question back, into an empty box. */
  unqueue() {
    if (!this.queued) return;
    if (!$("question").value.trim()) this.set(this.queued);
    this.queued = null;
    this.draw();
  },

  /** Asks the queued question once the answer has ended; after a failure it is taken back. */
  next(phase) {
    if (!this.queued) return;
    if (phase === "failed") { this.unqueue(); return; }
    const question = this.queued;
    this.queued = null;
    this.draw();
    talk.ask(question);
  },
};

/** While an answer is written, the button stops it, or queues what is in the box. */
function controls() {
  const running = Boolean(talk.running), send = $("send"), hasText = Boolean($("question").value.trim());
  const mode = running ? (hasText && !composer.queued ? "queue" : "stop") : "send";
  send.disabled = mode === "send" && !hasText;
  send.setAttribute("aria-label", T[mode]);
  send.title = T[mode];
  send.dataset.mode = mode;
  send.querySelector("use").setAttribute("href", mode === "stop" ? "#i-stop" : "#i-send");
  $("new-conversation").hidden = !talk.turns.length;
  talk.drawLatest();
}

function grow() {  // browsers without field-sizing
  if (CSS.supports("field-sizing", "content")) return;
  $("question").style.height = "auto";
  $("question").style.height = `${$("question").scrollHeight}px`;
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("send").dataset.mode === "stop") talk.stop(); else composer.submit();
});
$("question").addEventListener("input", () => { composer.at = null; grow(); controls(); });
$("question").addEventListener("keydown", (event) => {
  if (event.shiftKey || event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
  const { value, selectionStart: from, selectionEnd: to } = $("question");
  if (event.key === "Enter") {
    event.preventDefault();
    composer.submit();
  } else if (event.key === "ArrowUp" && from === to && !value.slice(0, from).includes("\n")) {
    if (composer.recall(-1)) event.preventDefault();
  } else if (event.key === "ArrowDown" && from === to && !value.slice(to).includes("\n") && composer.recall(1)) event.preventDefault();
});

$("effort").append(...Object.entries(T.effortName).map(([value, name]) => el("option", { value }, name)));
$("effort").value = remembered(localStorage, "vectorforge.effort") ?? "";
if ($("effort").selectedIndex < 0) $("effort").value = "";
$("effort").addEventListener("change", () => remember(localStorage, "vectorforge.effort", $("effort").value));
