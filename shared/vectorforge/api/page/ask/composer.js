"use strict";
// ---- the query box: earlier questions, the next question, effort
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
    this.earlier = [...this.earlier.filter((one) => one !== question), question].slice(-100);
    this.at = null;
  },

  /** Shows the question before or after the one shown; true if there is one. */
  recall(step) {
    if (this.at === null) this.draft = $("question").value;
    const to = (this.at ?? this.earlier.length) + step;
    if (to < 0 || to > this.earlier.length || (this.at === null && step > 0)) return false;
    this.at = to === this.earlier.length ? null : to;
    this.set(this.earlier[to] ?? this.draft);
    const end = step < 0 ? 0 : $("question").value.length;
    $("question").setSelectionRange(end, end);
    return true;
  },

  submit() {
    const question = $("question").value.trim();
    if (!question) return;
    if (talk.running && this.queued) { announce(T.queueFull); return; }
    this.at = null;
    this.set("");
    if (talk.running) {
      this.queue(question);
      announce(T.isQueued);
    } else talk.ask(question);
  },

  queue(question) {
    this.queued = question;
    $("queue").hidden = !question;
    $("queue").querySelector("b").textContent = question;
    controls();
  },

  /** Takes the queued question back, into an empty box. */
  unqueue() {
    if (!this.queued) return;
    if (!$("question").value.trim()) this.set(this.queued);
    this.queue(null);
  },

  /** Asks the queued question once the answer has ended; after a failure it is taken back. */
  next(phase) {
    if (!this.queued) return;
    if (phase === "failed") { this.unqueue(); return; }
    const question = this.queued;
    this.queue(null);
    talk.ask(question);
  },
};

/** While an answer is written, the button stops it, or queues what is in the box. */
function controls() {
  const send = $("send"), hasText = Boolean($("question").value.trim());
  const mode = !talk.running ? "send" : hasText && !composer.queued ? "queue" : "stop";
  send.disabled = mode === "send" && !hasText;
  send.ariaLabel = send.title = T[mode];
  send.dataset.mode = mode;
  $("new-conversation").hidden = !talk.turns.length;
  talk.drawLatest();
}

function grow() {  // browsers without field-sizing
  if (CSS.supports("field-sizing", "content")) return;
  $("question").style.height = "auto";
  $("question").style.height = `${$("question").scrollHeight}px`;
}

$("composer").onsubmit = (event) => {
  event.preventDefault();
  if ($("send").dataset.mode === "stop") talk.stop(); else composer.submit();
};
$("unqueue").onclick = () => { composer.unqueue(); $("question").focus(); };
$("question").oninput = () => { composer.at = null; grow(); controls(); };
$("question").onkeydown = (event) => {
  if (event.shiftKey || event.isComposing || event.altKey || event.ctrlKey || event.metaKey) return;
  const { value, selectionStart: from, selectionEnd: to } = $("question");
  const isFirstLine = from === to && !value.slice(0, from).includes("\n"), isLastLine = from === to && !value.slice(to).includes("\n");
  if (event.key === "Enter") composer.submit();
  else if (!(event.key === "ArrowUp" && isFirstLine && composer.recall(-1)) && !(event.key === "ArrowDown" && isLastLine && composer.recall(1))) return;
  event.preventDefault();
};

$("effort").value = remembered("localStorage", "vectorforge.effort") ?? "";
if ($("effort").selectedIndex < 0) $("effort").value = "";
$("effort").onchange = () => remember("localStorage", "vectorforge.effort", $("effort").value);
