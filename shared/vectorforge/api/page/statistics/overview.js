"use strict";
// ---- what is shown
const DAY = 86400e3, HOUR = 3600e3;
const asDay = (date) => new Date(date).toISOString().slice(0, 10);
document.title = `${T.statistics} – VectorForge`;

const form = $("controls"), { range, from, to } = form.elements, picker = form.elements.collection;

/** Whole hours or days of UTC, so that only the last interval is cut, by now. */
function query() {
  const days = parseInt(range.value, 10) - 1, isChosen = range.value === "days";
  const since = isChosen ? from.value : range.value === "24h" ? new Date(Math.floor(Date.now() / HOUR) * HOUR - 23 * HOUR).toISOString() : asDay(Date.now() - days * DAY);
  return new URLSearchParams({ since, ...(isChosen && { until: new Date(Date.parse(to.value) + DAY).toISOString() }), ...(picker.value && { collection_id: picker.value }) });
}

let loading = null, shown = null;

async function load() {
  loading?.abort();
  const { signal } = loading = new AbortController();
  $("banner").hidden = true;
  $("found").ariaBusy = "true";
  try {
    shown = await getJson(`/v1/stats?${query()}`, { signal });
    if (signal.aborted) return;
    draw();
    announce(S.loaded(whole(shown.totals.queries)));
  } catch (error) {
    if (signal.aborted) return;
    $("found").hidden = $("nothing").hidden = true;
    $("banner").hidden = false;
    $("banner").querySelector("span").textContent = S.notLoaded(error.message);
  }
  $("found").ariaBusy = "false";
}

function draw() {
  const { totals, content } = shown, isNone = totals.queries === 0;
  $("nothing").hidden = !isNone;
  $("found").hidden = isNone;
  $("nothing").querySelector("p").textContent = content.documents ? S.askOne(content.documents) : S.noDocuments;
  if (isNone) return;
  $("tiles").replaceChildren(...tiles());
  $("charts").replaceChildren(...charts().filter(Boolean));
}

const rated = ({ rated_up: up, rated_down: down }) => up + down;

function tiles() {
  const { totals, content, degraded_steps: degraded } = shown, { outcomes, latency_ms: latency, queries: all, prompt_tokens: read, completion_tokens: written } = totals;
  const tile = (name, value, small) => el("div", el("dt", name), el("dd", value, small && el("small", small)));
  const timeTile = (name, time) => tile(name, time ? duration(time.p50) : "–", time && S.within(duration(time.p95)));
  const shareTile = (name, count = 0, small = whole(count)) => tile(name, share(count, all), small);
  const steps = Object.entries(degraded).map(([step, count]) => `${S.steps[step] ?? step} ${whole(count)}`).join(", ");
  return [
    tile(S.questions, whole(all), S.failedOf(whole(outcomes.error ?? 0))),
    timeTile(S.typical, latency.total),
    timeTile(S.firstWord, latency.first_token),
    tile(S.tokens, short(read + written), S.readWritten(short(read), short(written))),
    tile(S.cost, usd(totals.cost_usd), totals.unpriced ? S.unpriced(whole(totals.unpriced)) : S.listPrices),
    shareTile(S.fromCache, totals.cached),
    shareTile(S.nothingFound, outcomes.empty),
    shareTile(S.degraded, totals.degraded, steps || S.noneOf),
    shareTile(S.lowQuality, totals.low_quality),
    tile(S.ratedGood, share(totals.rated_up, rated(totals)), S.ratings(whole(totals.rated_up), rated(totals))),
    tile(T.documents, whole(content.documents), counted(content.chunks, "passage")),
  ];
}

function charts() {
  const outcome = (...names) => ({ outcomes }) => names.reduce((sum, name) => sum + (outcomes[name] ?? 0), 0);
  const latency = (percentile) => ({ latency_ms: times }) => times.total?.[percentile] ?? null;
  const field = (name) => (interval) => interval[name];
  const bars = (title, format, ...parts) => timeChart(title, parts, { format });
  return [
    timeChart(S.byOutcome, [
      [S.answered, "one", outcome("answered")], [S.fromCache, "two", outcome("cached")],
      [S.nothingFound, "three", outcome("empty")], [S.outOfTime, "six", outcome("deadline")],
      [S.stopped, "four", outcome("aborted", "started")], [S.failed, "five", outcome("error")],
    ], { format: whole, wide: true }),
    timeChart(S.toAnswer, PERCENTILES.map(([name, tone, percentile]) => [name, tone, latency(percentile)]), { format: duration, nested: true }),
    stageChart(),
    bars(S.tokens, short, [S.read, "two", field("prompt_tokens")], [S.written, "one", field("completion_tokens")]),
    bars(S.cost, usd, [S.dollars, "one", field("cost_usd")]),
    bars(S.fromCache, whole, [S.answers, "two", field("cached")]),
    bars(S.nothingFound, whole, [S.questions, "three", outcome("empty")]),
    bars(S.degraded, whole, [S.answers, "six", field("degraded")]),
    bars(S.lowQuality, whole, [S.answers, "five", field("low_quality")]),
    breakdown(S.models, S.model, shown.models, (row) => (row.model ? `${row.provider} · ${row.model}` : S.noName)),
    shown.variants.some((row) => row.variant) && breakdown(S.variants, S.variant, shown.variants, (row) => row.variant ?? S.noName),
    shown.collections.length > 1 && breakdown(S.collections, T.collection, shown.collections, (row) => row.name ?? S.deleted(row.collection_id)),
  ];
}

/** The numbers of each model, variant or collection. */
function breakdown(title, first, rows, name) {
  const time = (row, percentile) => (row.latency_ms.total ? duration(row.latency_ms.total[percentile]) : "–");
  return el("section.wide", { "aria-label": title }, el("h2", title),
    scroller(S.tableOf(title), [first, S.questions, S.failed, S.half, "95 %", S.tokens, S.cost, S.ratedGood], rows.map((row) => [
      name(row), whole(row.queries), whole(row.outcomes.error ?? 0), time(row, "p50"), time(row, "p95"), short(row.prompt_tokens + row.completion_tokens),
      usd(row.cost_usd) + (row.unpriced ? " *" : ""), rated(row) ? T.at(whole(row.rated_up), whole(rated(row))) : "–"])),
    rows.some((row) => row.unpriced) && el("p.note", S.unpricedNote));
}

// ---- controls
/** Shows what the address says, which the browser checks; the last seven days without it. */
async function start() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has("range")) range.value = given.get("range");
  from.value = given.get("from");
  to.value = given.get("to");
  from.value ||= asDay(Date.now() - 6 * DAY);
  to.value ||= asDay(Date.now());
  if (picker.options.length === 1) try {
    picker.append(...(await everyCollection()).map(({ id, name }) => new Option(name, id)));
    picker.value = given.get("collection") ?? "";
    if (picker.selectedIndex < 0) picker.value = "";
  } catch { /* load() says what is wrong */ }
  await load();
}

form.onchange = () => {
  if (!form.checkValidity()) return;
  history.replaceState(null, "", `#${new URLSearchParams(new FormData(form))}`);
  load();
};
form.onsubmit = (event) => event.preventDefault();
$("reload").onclick = load;
$("banner").querySelector("button").onclick = start;
start();
