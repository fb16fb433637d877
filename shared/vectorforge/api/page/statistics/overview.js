"use strict";
// ---------------------------------------------------------------- what is shown
const DAY = 86400e3, HOUR = 3600e3;
const asDay = (date) => new Date(date).toISOString().slice(0, 10);
for (const link of document.querySelectorAll("a[href='./']")) link.href = base + "/";
document.title = `${T.statistics} – VectorForge`;

const view = {
  range: "7d", collection: "", from: asDay(Date.now() - 6 * DAY), to: asDay(Date.now()),

  read() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (given.get("range") in S.ranges) this.range = given.get("range");
    for (const end of ["from", "to"]) if (/^\d{4}-\d\d-\d\d$/.test(given.get(end) ?? "")) this[end] = given.get(end);
    this.collection = given.get("collection") ?? "";
  },

  write() {
    const days = this.range === "days" ? { from: this.from, to: this.to } : {};
    const chosen = { range: this.range, ...days, ...(this.collection && { collection: this.collection }) };
    history.replaceState(null, "", "#" + new URLSearchParams(chosen));
  },

  /** Whole hours or days of UTC, so that only the last interval is cut, by now. */
  query() {
    const parameters = new URLSearchParams();
    if (this.range === "24h") parameters.set("since", new Date(Math.floor(Date.now() / HOUR) * HOUR - 23 * HOUR).toISOString());
    else if (this.range === "days") {
      parameters.set("since", this.from);
      const end = Date.parse(this.to);
      if (!Number.isNaN(end)) parameters.set("until", new Date(end + DAY).toISOString());
    } else parameters.set("since", asDay(Date.now() - (parseInt(this.range, 10) - 1) * DAY));
    if (this.collection) parameters.set("collection_id", this.collection);
    return parameters;
  },
};

let loading = null, shown = null;

async function load() {
  loading?.abort();
  const mine = loading = new AbortController();
  $("banner").hidden = true;
  $("found").setAttribute("aria-busy", "true");
  try {
    shown = await getJson(`/v1/stats?${view.query()}`, { signal: mine.signal });
    if (mine.signal.aborted) return;
    draw();
    announce(S.loaded(whole(shown.totals.queries)));
  } catch (error) {
    if (mine.signal.aborted) return;
    $("found").hidden = $("nothing").hidden = true;
    $("banner").hidden = false;
    $("banner").querySelector("span").textContent = S.notLoaded(error.message);
  } finally {
    if (loading === mine) $("found").setAttribute("aria-busy", "false");
  }
}

function draw() {
  const { totals, content } = shown, none = totals.queries === 0;
  $("nothing").hidden = !none;
  $("found").hidden = none;
  $("nothing").querySelector("p").textContent = content.documents ? S.askOne(content.documents) : S.noDocuments;
  if (none) return;
  $("tiles").replaceChildren(...tiles());
  $("charts").replaceChildren(...charts());
}

function tiles() {
  const { totals, content } = shown, { outcomes, latency_ms: latency } = totals, all = totals.queries;
  const tile = (name, value, small) => el("div", {}, el("dt", {}, name), el("dd", {}, value, small && el("small", {}, small)));
  const unpriced = totals.unpriced && S.unpriced(whole(totals.unpriced));
  const steps = Object.entries(shown.degraded_steps).map(([step, count]) => `${S.steps[step] ?? step} ${whole(count)}`).join(", ");
  return [
    tile(S.questions, whole(all), S.failedOf(whole(outcomes.error ?? 0))),
    tile(S.typical, latency.total ? duration(latency.total.p50) : "–", latency.total && S.within(duration(latency.total.p95))),
    tile(S.firstWord, latency.first_token ? duration(latency.first_token.p50) : "–", latency.first_token && S.within(duration(latency.first_token.p95))),
    tile(S.tokens, short(totals.prompt_tokens + totals.completion_tokens), S.readWritten(short(totals.prompt_tokens), short(totals.completion_tokens))),
    tile(S.cost, dollars(totals.cost_usd), unpriced || S.listPrices),
    tile(S.fromCache, share(totals.cached, all), whole(totals.cached)),
    tile(S.nothingFound, share(outcomes.empty ?? 0, all), whole(outcomes.empty ?? 0)),
    tile(S.degraded, share(totals.degraded, all), steps || S.noneOf),
    tile(S.lowQuality, share(totals.low_quality, all), whole(totals.low_quality)),
    tile(S.ratedGood, rated(totals) ? share(totals.rated_up, rated(totals)) : "–", S.ratings(whole(totals.rated_up), rated(totals))),
    tile(T.documents, whole(content.documents), counted(content.chunks, "passage")),
  ];
}

function charts() {
  const outcome = (name) => (interval) => interval.outcomes[name] ?? 0;
  const latency = (stage, p) => (interval) => interval.latency_ms[stage]?.[p] ?? null;
  const counts = { format: whole, bars: true };
  return [
    timeChart(S.byOutcome, [
      [S.answered, "one", outcome("answered")], [S.fromCache, "two", outcome("cached")],
      [S.nothingFound, "three", outcome("empty")], [S.outOfTime, "six", outcome("deadline")],
      [S.stopped, "four", (interval) => outcome("aborted")(interval) + outcome("started")(interval)],
      [S.failed, "five", outcome("error")],
    ], { ...counts, wide: true, height: 220 }),
    timeChart(S.toAnswer, [
      [S.half, "one", latency("total", "p50")], ["95 %", "two", latency("total", "p95")], ["99 %", "four", latency("total", "p99")],
    ], { format: duration }),
    stageChart(),
    timeChart(S.tokens, [[S.read, "two", (i) => i.prompt_tokens], [S.written, "one", (i) => i.completion_tokens]], { format: short, bars: true }),
    timeChart(S.cost, [[S.dollars, "one", (i) => i.cost_usd]], { format: dollars, bars: true }),
    timeChart(S.fromCache, [[S.answers, "two", (i) => i.cached]], counts),
    timeChart(S.nothingFound, [[S.questions, "three", outcome("empty")]], counts),
    timeChart(S.degraded, [[S.answers, "six", (i) => i.degraded]], counts),
    timeChart(S.lowQuality, [[S.answers, "five", (i) => i.low_quality]], counts),
    ...[
      table(S.models, S.model, shown.models, (row) => (row.model ? `${row.provider} · ${row.model}` : S.noName)),
      shown.variants.some((row) => row.variant) ? table(S.variants, S.variant, shown.variants, (row) => row.variant ?? S.noName) : null,
      shown.collections.length > 1 ? table(S.collections, T.collection, shown.collections, (row) => row.name ?? S.deleted(row.collection_id)) : null,
    ].filter(Boolean),
  ];
}

// ---------------------------------------------------------------- controls
function drawControls() {
  $("range").append(...Object.entries(S.ranges).map(([value, name]) => el("label", {},
    el("input", { type: "radio", name: "range", value, checked: value === view.range, onchange: () => { view.range = value; changed(); } }), el("span", {}, name))));
  $("days").hidden = view.range !== "days";
  for (const end of ["from", "to"]) {
    $(end).value = view[end];
    $(end).addEventListener("change", () => { if ($(end).value) { view[end] = $(end).value; changed(); } });
  }
}

function changed() {
  $("days").hidden = view.range !== "days";
  view.write();
  load();
}

async function loadCollections() {
  const collections = [];
  for (let full = true; full; ) {
    const page = await getJson(`/v1/collections?limit=200&offset=${collections.length}`);
    collections.push(...page.collections);
    full = page.collections.length === 200;
  }
  for (const { id, name } of collections) $("collection").append(el("option", { value: id }, name));
  if ([...$("collection").options].some((option) => option.value === view.collection)) $("collection").value = view.collection;
  else view.collection = "";
}

$("collection").addEventListener("change", () => { view.collection = $("collection").value; changed(); });
$("reload").addEventListener("click", load);
$("banner").querySelector("button").addEventListener("click", start);

async function start() {
  if ($("collection").options.length === 1) try { await loadCollections(); } catch { /* load() says what is wrong */ }
  await load();
}
view.read();
drawControls();
start();
