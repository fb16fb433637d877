"use strict";
// ---------------------------------------------------------------- how an answer came about: passages, time, cost
const usd = (amount) => (amount === 0 ? "$0" : new Intl.NumberFormat(language, { style: "currency", currency: "USD", ...(amount < 0.01 ? { maximumSignificantDigits: 2 } : {}) }).format(amount));

const tokensText = (usage) => T.tokens(digits(usage?.prompt_tokens ?? 0), digits(usage?.completion_tokens ?? 0));

/** "$0.0012", or why there is no number. */
function costText(done, meta) {
  if (meta?.extractive) return T.noModelCost;
  if (typeof done.cost_usd !== "number") return T.noPrice;
  return done.cached ? T.fromCache(usd(done.cost_usd)) : usd(done.cost_usd);
}

/** Retrieval funnel as bars, with the numbers as text for screen readers. */
function funnelPicture(funnel) {
  const matched = typeof funnel.matched === "number" ? funnel.matched : null;
  const used = funnel.used ?? funnel.candidates - funnel.below_min_score - funnel.dropped_by_budget;
  const rows = [
    [matched, "kept", matched === null ? T.notSearched : `${digits(matched)}${funnel.matched_is_at_least ? "+" : ""}`],
    [funnel.candidates, "kept"],
    [funnel.below_min_score, "lost"],
    [funnel.dropped_by_budget, "lost"],
    [used, "kept"],
    [funnel.cited, "cited"],
  ];
  const widest = Math.log1p(Math.max(matched ?? 0, funnel.candidates, 1));
  return el("ol", { class: "funnel", "aria-label": T.passages }, ...rows.map(([count, kind, text], at) => {
    const bar = el("i", { class: kind });
    bar.style.width = `${(Math.log1p(count ?? 0) / widest) * 100}%`;  // logarithmic: one of 10,000 is to be seen
    const number = kind === "lost" && count ? `−${digits(count)}` : text ?? digits(count);
    return el("li", { class: kind }, el("span", {}, T.funnel[at]), el("span", { class: "track", "aria-hidden": "true" }, bar), el("b", {}, number));
  }));
}

/** Where the time went: search, waiting for the first word, writing. Returns [kind, milliseconds] for each. */
function timeParts(latency) {
  const { retrieval_ms: search = 0, first_token_ms: first = null, total_ms: total = 0 } = latency;
  if (first === null || first === undefined) return [["search", search], ["rest", Math.max(0, total - search)]];
  return [["search", Math.min(search, first)], ["first", Math.max(0, first - search)], ["write", Math.max(0, total - Math.max(first, search))]];
}

function timePicture(latency) {
  const parts = timeParts(latency), sum = Math.max(parts.reduce((all, [, ms]) => all + ms, 0), 1e-6);
  const bar = el("div", { class: "times", "aria-hidden": "true" }, ...parts.map(([kind, ms]) => {
    const part = el("i", { class: kind });
    part.style.flexGrow = String(ms / sum);
    return part;
  }));
  const row = (kind, ms, name = T.times[kind]) => el("li", {}, el("i", { class: kind, "aria-hidden": "true" }), el("span", {}, name), el("b", {}, duration(ms)));
  return [bar, el("ul", { class: "legend", "aria-label": T.time }, ...parts.map((part) => row(...part)), row("total", latency.total_ms ?? 0, T.total))];
}

function verdictText(citations, uncited = 0) {
  const count = (verdict) => citations.filter((citation) => citation.verdict === verdict).length;
  const said = Object.keys(T.verdictCounts).filter(count).map((verdict) => `${count(verdict)} ${T.verdictCounts[verdict]}`);
  const counts = [said.length ? T.verdictText(said.join(", ")) : null, uncited ? T.uncited(uncited) : null];
  return counts.filter(Boolean).join(" ");
}

/** Plans and searches of an answer with effort, in order. */
function stepList(steps) {
  const rows = steps.map((step) => {
    const queries = step.queries.flatMap((query, index) => [index ? ", " : "", el("q", {}, query)]);
    const subject = step.kind === "read" ? [step.source] : queries.length ? queries : [T.noFurther];
    const outcome = step.error ? T.skipped(step.error) : step.kind === "plan" ? T.origins[step.origin] : T.foundNew(step.found, digits(step.added));
    return el("li", {}, `${T.stepNames[step.kind]} `, ...subject, el("span", {}, ` (${outcome})`));
  });
  return el("section", { class: "steps" }, el("h4", {}, T.howFound), el("ol", { "aria-label": T.stepsList }, ...rows));
}

/** The whole of it, below an answer that has come to its end. */
function evidenceOf({ done, meta, usage, citations }) {
  if (!done?.funnel || !done.latency) return null;
  const tokens = tokensText(usage) + (usage?.estimated ? T.estimated : "");
  const verdicts = verdictText(citations, done.quality?.uncited_sentences);
  return el("details", { class: "evidence" }, el("summary", {}, T.evidence),
    el("div", { class: "pictures" },
      el("section", {}, el("h4", {}, T.passages), funnelPicture(done.funnel)),
      el("section", {}, el("h4", {}, T.timeAndCost), ...timePicture(done.latency),
        el("p", { class: "cost" }, el("b", {}, costText(done, meta)), meta?.extractive ? null : el("span", {}, tokens)))),
    meta?.rewritten_query ? el("p", { class: "searched" }, T.searchedFor, el("q", {}, meta.rewritten_query)) : null,
    done.steps?.length ? stepList(done.steps) : null,
    verdicts ? el("p", { class: "verdicts" }, verdicts) : null);
}
