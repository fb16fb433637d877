"use strict";
// ---------------------------------------------------------------- how an answer came about: passages, time, cost
const VERDICTS = {
  supported: "Words match: the passage has the numbers, names and most words of the sentence",
  unsupported: "Not supported: the passage lacks or contradicts a number, a name or a word of the sentence",
  unchecked: "Not checkable: the words of sentence and passage differ too much to compare",
};
const VERDICT_COUNTS = { supported: "with the words of their passage", unsupported: "not supported", unchecked: "not checkable" };

const usd = (amount) => (amount === 0 ? "$0" : new Intl.NumberFormat("en-US", { style: "currency", currency: "USD", ...(amount < 0.01 ? { maximumSignificantDigits: 2 } : {}) }).format(amount));

/** "$0.0012", or why there is no number. */
function costText(done, meta) {
  if (meta?.extractive) return "$0, no model wrote this";
  if (typeof done.cost_usd !== "number") return "price unknown";
  return done.cached ? `${usd(done.cost_usd)}, from the cache` : usd(done.cost_usd);
}

/** Retrieval funnel as bars, with the numbers as text for screen readers. */
function funnelPicture(funnel) {
  const matched = typeof funnel.matched === "number" ? funnel.matched : null;
  const used = funnel.used ?? funnel.candidates - funnel.below_min_score - funnel.dropped_by_budget;
  const rows = [
    ["Matched", matched, "kept", matched === null ? "not searched" : `${matched.toLocaleString()}${funnel.matched_is_at_least ? "+" : ""}`],
    ["Nearest", funnel.candidates, "kept"],
    ["Scored too low", funnel.below_min_score, "lost"],
    ["Did not fit", funnel.dropped_by_budget, "lost"],
    ["Read", used, "kept"],
    ["Cited", funnel.cited, "cited"],
  ];
  const widest = Math.log1p(Math.max(matched ?? 0, funnel.candidates, 1));
  return el("ol", { class: "funnel", "aria-label": "Passages" }, ...rows.map(([name, count, kind, text]) => {
    const bar = el("i", { class: kind });
    bar.style.width = `${(Math.log1p(count ?? 0) / widest) * 100}%`;  // logarithmic: one of 10,000 is to be seen
    const number = kind === "lost" && count ? `−${count.toLocaleString()}` : text ?? count.toLocaleString();
    return el("li", { class: kind, "data-step": name }, el("span", {}, name), el("span", { class: "track", "aria-hidden": "true" }, bar), el("b", {}, number));
  }));
}

/** Where the time went: search, waiting for the first word, writing. Returns [name, kind, milliseconds] for each. */
function timeParts(latency) {
  const { retrieval_ms: search = 0, first_token_ms: first = null, total_ms: total = 0 } = latency;
  if (first === null || first === undefined) return [["Search", "search", search], ["The rest", "write", Math.max(0, total - search)]];
  return [["Search", "search", Math.min(search, first)], ["Wait for first word", "first", Math.max(0, first - search)], ["Writing", "write", Math.max(0, total - Math.max(first, search))]];
}

function timePicture(latency) {
  const parts = timeParts(latency), sum = Math.max(parts.reduce((all, [, , ms]) => all + ms, 0), 1e-6);
  const bar = el("div", { class: "times", "aria-hidden": "true" }, ...parts.map(([, kind, ms]) => {
    const part = el("i", { class: kind });
    part.style.flexGrow = String(ms / sum);
    return part;
  }));
  const row = (name, kind, ms) => el("li", { "data-time": name }, el("i", { class: kind, "aria-hidden": "true" }), el("span", {}, name), el("b", {}, duration(ms)));
  const rows = parts.map(([name, kind, ms]) => row(name, kind, ms));
  return [bar, el("ul", { class: "legend", "aria-label": "Time" }, ...rows, row("Total", "total", latency.total_ms ?? 0))];
}

function verdictText(citations, uncited = 0) {
  const count = (verdict) => citations.filter((citation) => citation.verdict === verdict).length;
  const said = Object.keys(VERDICT_COUNTS).filter(count).map((verdict) => `${count(verdict)} ${VERDICT_COUNTS[verdict]}`);
  const counts = [said.length ? `Citations, compared by words: ${said.join(", ")}.` : null, uncited ? `${plural(uncited, "sentence")} without a citation.` : null];
  return counts.filter(Boolean).join(" ");
}

const STEP_NAMES = { plan: "Planned", search: "Searched for", read: "Read" };
const STEP_ORIGINS = { query: "the question", request: "given with the question", model: "by the model", rules: "by rules" };

/** Plans and searches of an answer with effort, in order. */
function stepList(steps) {
  const rows = steps.map((step) => {
    const queries = step.queries.flatMap((query, index) => [index ? ", " : "", el("q", {}, query)]);
    const subject = step.kind === "read" ? [step.source] : queries.length ? queries : ["no further search"];
    const outcome = step.error ? `skipped: ${step.error}` : step.kind === "plan" ? STEP_ORIGINS[step.origin] : `${plural(step.found, "passage")}, ${step.added.toLocaleString()} new`;
    return el("li", { "data-step": step.kind }, `${STEP_NAMES[step.kind]} `, ...subject, el("span", {}, ` (${outcome})`));
  });
  return el("section", { class: "steps" }, el("h4", {}, "How this answer was found"), el("ol", { "aria-label": "Steps" }, ...rows));
}

/** The whole of it, below an answer that has come to its end. */
function evidenceOf({ done, meta, usage, citations }) {
  if (!done?.funnel || !done.latency) return null;
  const tokens = `${(usage?.prompt_tokens ?? 0).toLocaleString()} tokens read, ${(usage?.completion_tokens ?? 0).toLocaleString()} written${usage?.estimated ? " (estimated)" : ""}`;
  const verdicts = verdictText(citations, done.quality?.uncited_sentences);
  return el("details", { class: "evidence" }, el("summary", {}, "How this answer came about"),
    el("div", { class: "pictures" },
      el("section", {}, el("h4", {}, "Passages"), funnelPicture(done.funnel)),
      el("section", {}, el("h4", {}, "Time and cost"), ...timePicture(done.latency),
        el("p", { class: "cost" }, el("b", {}, costText(done, meta)), meta?.extractive ? null : el("span", {}, tokens)))),
    meta?.rewritten_query ? el("p", { class: "searched" }, "Searched for: ", el("q", {}, meta.rewritten_query)) : null,
    done.steps?.length ? stepList(done.steps) : null,
    verdicts ? el("p", { class: "verdicts" }, verdicts) : null);
}
