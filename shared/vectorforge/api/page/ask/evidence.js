"use strict";
// ---- how an answer came about: passages, time, cost
const tokensText = (usage) => T.tokens(digits(usage?.prompt_tokens ?? 0), digits(usage?.completion_tokens ?? 0));

/** "$0.0012", or why there is no number. */
function costText({ cost_usd: cost, cached }, meta) {
  if (meta?.extractive) return T.noModelCost;
  if (typeof cost !== "number") return T.noPrice;
  return cached ? T.fromCache(usd(cost)) : usd(cost);
}

/** Retrieval funnel as bars, with the numbers as text for screen readers. */
function funnelRows({ matched, matched_is_at_least: isAtLeast, candidates, below_min_score: weak, dropped_by_budget: dropped, used, cited }) {
  const rows = [[matched, "kept"], [candidates, "kept"], [weak, "lost"], [dropped, "lost"], [used ?? candidates - weak - dropped, "kept"], [cited, "cited"]];
  const widest = Math.log1p(Math.max(matched ?? 0, candidates, 1));
  return rows.map(([count, kind], at) => {
    const width = `${(Math.log1p(count ?? 0) / widest) * 100}%`;  // logarithmic: one of 10,000 is to be seen
    const number = count === null || count === undefined ? T.notSearched : (kind === "lost" && count ? "−" : "") + digits(count) + (!at && isAtLeast ? "+" : "");
    return el(`li.${kind}`, el("span", T.funnel[at]), el("span.track", { "aria-hidden": "true" }, el("i", { style: { width } })), el("b", number));
  });
}

/** Where the time went: search, waiting for the first word, writing. Returns [kind, milliseconds] for each. */
function timeParts({ retrieval_ms: search = 0, first_token_ms: first, total_ms: total = 0 }) {
  if (first === null || first === undefined) return [["search", search], ["rest", Math.max(0, total - search)]];
  return [["search", Math.min(search, first)], ["first", Math.max(0, first - search)], ["write", Math.max(0, total - Math.max(first, search))]];
}

function verdictText(citations, uncited) {
  const count = (verdict) => citations.filter((citation) => citation.verdict === verdict).length;
  const said = Object.keys(T.verdictCounts).filter(count).map((verdict) => `${count(verdict)} ${T.verdictCounts[verdict]}`);
  return joined(" ", said.length && T.verdictText(said.join(", ")), uncited && T.uncited(uncited));
}

/** A plan or a search of an answer with effort. */
function stepRow({ kind, queries, source: read, error, origin, found, added }) {
  const subject = kind === "read" ? read : queries.flatMap((query, index) => [index > 0 && ", ", el("q", query)]);
  const outcome = error ? T.skipped(error) : kind === "plan" ? T.origins[origin] : T.foundNew(found, digits(added));
  return el("li", `${T.stepNames[kind]} `, subject.length ? subject : T.noFurther, el("span", ` (${outcome})`));
}

/** The whole of it, below an answer that has come to its end. */
function evidenceOf({ done, meta, usage, citations }) {
  if (!done?.funnel || !done.latency) return null;
  const parts = timeParts(done.latency), sum = Math.max(parts.reduce((all, [, ms]) => all + ms, 0), 1e-6);
  const timeRow = ([kind, ms]) => el("li", el(`i.${kind}`, { "aria-hidden": "true" }), el("span", T.times[kind]), el("b", duration(ms)));
  return copyOf("evidence", {
    ".funnel": funnelRows(done.funnel),
    ".times": parts.map(([kind, ms]) => el(`i.${kind}`, { style: { flexGrow: ms / sum } })),
    ".legend": [...parts, ["total", done.latency.total_ms ?? 0]].map(timeRow),
    ".cost b": costText(done, meta),
    ".cost span": !meta?.extractive && tokensText(usage) + (usage?.estimated ? T.estimated : ""),
    ".searched": meta?.rewritten_query && el("q", meta.rewritten_query),
    ".steps": done.steps?.length > 0 && el("ol", { "aria-label": T.stepsList }, done.steps.map(stepRow)),
    ".verdicts": verdictText(citations, done.quality?.uncited_sentences),
  });
}
