"use strict";
// ---- below an answer: its sources, its time and cost
/** The title, else the source; of a path its last part. */
const sourceName = (item) => item.title || (item.document_source || item.source || T.source(item.number)).replace(/^.*\/(?=.)/, "");
/** The heading path without the document's title, which is shown next to it. */
const headingOf = ({ heading, title }) => (heading ?? "").split(" > ").filter((part, at) => at || part !== title).join(" > ");
const firstWords = (text) => (text ?? "").replace(/\s+/g, " ").trim().slice(0, 120);

/** What the passage was ranked by, and its name: of vectors alone the score, else what vectors and words say together. */
const nearness = ({ relevance, score }) => (typeof relevance === "number" ? [relevance, T.relevance] : [score, T.similarity]);

/** The cited sources, the others folded; without citations all of them. */
function sourceList(turn) {
  if (!turn.sources.length) return null;
  const used = new Set([...turn.body.querySelectorAll(".cite")].map((node) => Number(node.dataset.source)));
  const scale = Math.max(1, ...turn.sources.map((item) => nearness(item)[0] ?? 0));
  const listOf = (isCited) => [...turn.sources.keys()].filter((index) => used.has(index) === isCited).map((index) => sourceRow(turn, index, isCited, scale));
  const cited = listOf(true), others = listOf(false);
  return el("section.sources", { "aria-label": T.sources }, el("h3", cited.length ? T.sources : T.passagesFound), el("ul", cited.length ? cited : others),
    cited.length > 0 && others.length > 0 && el("details.more", el("summary.text-button", T.moreRead(others.length)), el("ul", others)));
}

function sourceRow(turn, index, isCited, scale) {
  const item = turn.sources[index], name = sourceName(item), file = item.document_source || item.source, [score, scoreName] = nearness(item);
  return el(isCited ? "li" : "li.uncited", el("button.source", { "data-source": index, onclick: ({ currentTarget }) => source.open(turn.sources, index, currentTarget) },
    el("span.number", item.number), el("b", name),
    el("em", joined(" · ", turn.placeOf(item), turn.headingOf(item), file !== name && file) || firstWords(item.text || item.snippet)),
    typeof score === "number" && el("span.score", { title: T.toQuestion(scoreName) },
      el("i", { "aria-hidden": "true" }, el("i", { style: { width: `${Math.max(0, score / scale) * 100}%` } })),
      el("span.sr", `${scoreName.toLowerCase()} `), digits(score, 2))));
}

function footerOf(turn) {
  const { done, meta, usage, text } = turn, step = done?.degraded?.at(-1), cost = done?.cost_usd;
  const search = done?.latency?.retrieval_ms ?? turn.retrievalMs, total = done?.latency?.total_ms;
  const facts = [step ? T.instead[step] ?? step : done?.cached && T.answeredBefore,
    typeof search === "number" && T.searchedIn(duration(search)), typeof total === "number" && T.answeredIn(duration(total))];
  if (!meta?.extractive) facts.push(usage?.total_tokens && tokensText(usage), meta?.model, cost !== undefined && (typeof cost === "number" ? usd(cost) : T.noPrice));
  const copy = textButton(T.copy, () => navigator.clipboard.writeText(turn.text).then(() => { copy.textContent = T.copied; announce(T.answerCopied); }, () => announce(T.noCopying)));
  const node = el("p.foot", el("span", joined(" · ", ...facts)), text && navigator.clipboard && copy,
    turn.phase === "stopped" && textButton(T.askAgain, () => talk.retry(turn)));
  return node.textContent ? node : null;
}
