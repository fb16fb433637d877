"use strict";
// ---- charts of the statistics
const S = T.stats, whole = (value) => digits(Math.round(value));
const short = (value) => new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 }).format(value);
const share = (part, all) => (all ? `${digits((part / all) * 100, part && part / all < 0.1 ? 1 : 0)} %` : "–");

const timeText = (start, day, hour) => new Date(start).toLocaleString(language, shown.bucket === "hour" ? hour : { ...day, timeZone: "UTC" });
const label = (start) => timeText(start, { day: "numeric", month: "short" }, { hour: "2-digit", minute: "2-digit" });
const fullLabel = (start) => timeText(start, { weekday: "short", day: "numeric", month: "long" }, { weekday: "short", hour: "2-digit", minute: "2-digit" });

const swatch = (tone) => el(`i.swatch.${tone}`, { "aria-hidden": "true" });
const heading = (title, parts = []) => el("figcaption", el("h2", title), parts.length > 1 && el("ul.legend", parts.map(([name, tone]) => el("li", swatch(tone), name))));

/** rows: each its name, then its cells. */
const scroller = (name, columns, rows) => el("div.scroller", { tabindex: 0, role: "region", "aria-label": name }, el("table",
  el("thead", el("tr", columns.map((column) => el("th", { scope: "col" }, column)))),
  el("tbody", rows.map(([first, ...cells]) => el("tr", el("th", { scope: "row" }, first), cells.map((cell) => el("td", cell)))))));
const dataTable = (title, parts, rows) => el("details", el("summary", S.asTable), scroller(`${title}: ${S.asTable}`, ["", ...parts.map(([name]) => name)], rows));

/** Values of a scale from 0 to at least top, at most five steps of 1, 2, 2.5 or 5 times a power of ten. */
function ticksTo(top, least = 0) {
  const raw = Math.max(top / 4 || 1, least), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw);
  return Array.from({ length: Math.max(1, Math.ceil(top / step)) + 1 }, (_, at) => at * step);
}

// ---- numbers over the intervals
/** Bars; parts are [name, tone, value of an interval or null], one upon the other, or nested: each from the ground, longer ones behind. */
function timeChart(title, parts, { format, nested = false, wide = false }) {
  const intervals = shown.series, name = wide ? "figure.wide" : "figure";
  const drawn = parts.filter(([, , value]) => intervals.some((interval) => value(interval)));
  if (!drawn.length) return el(name, heading(title), el("p.note", S.none));
  const bars = intervals.map((interval) => barsOf(drawn.map(([, tone, value]) => [tone, value(interval) ?? 0]), nested));
  const ticks = ticksTo(Math.max(...bars.flat().map(({ to }) => to)), format === whole ? 1 : 0), every = Math.ceil(intervals.length / 7);
  const texts = (interval) => drawn.map(([, , value]) => (value(interval) === null ? "–" : format(value(interval))));
  const plot = el("div.plot", { role: "group", "aria-label": S.chart(title) }, drawingOf(ticks, bars),
    intervals.map((interval, at) => intervalOf(title, fullLabel(interval.start), texts(interval).map((text, part) => [drawn[part][1], drawn[part][0], text]), (at + 0.5) / bars.length)));
  return el(name, heading(title, drawn),
    el("div.chart", el("ol.scale", ticks.map((tick) => el("li", format(tick)))), plot,
      el("ol.starts", intervals.map((interval, at) => at % every === 0 && el("li", { style: { left: `${((at + 0.5) / intervals.length) * 100}%` } }, label(interval.start))))),
    dataTable(title, drawn, intervals.map((interval) => [fullLabel(interval.start), ...texts(interval)])));
}

/** The numbers of an interval, shown under the pointer or with the focus, which the browser moves among the radio buttons of a chart. */
function intervalOf(chart, start, rows, place) {
  const name = joined(", ", start, ...rows.map(([, part, text]) => `${part} ${text}`)), left = `${place * 100}%`;
  return el("label", el("input", { type: "radio", name: chart, "aria-label": name }),
    el("span.tip", { style: { left, translate: `-${left}` } }, el("b", start), rows.map(([tone, ...texts]) => [swatch(tone), ...texts.map((text) => el("span", text))]).flat()));
}

/** The bars of an interval from their values: {tone, from, to}. */
function barsOf(values, nested) {
  let ground = 0;
  const bars = values.map(([tone, value]) => ({ tone, from: nested ? 0 : ground, to: nested ? value : ground += value })).filter(({ from, to }) => to > from);
  return nested ? bars.reverse() : bars;
}

/** An SVG whose units are intervals and values, which is stretched to its place. */
function drawingOf(ticks, bars) {
  const max = ticks.at(-1), barOf = (at) => ({ tone, from, to }) => {
    const height = Math.max(to - from, max / 150);  // at least a pixel
    return shape(`rect.bar-part.${tone}`, { x: at + 0.08, y: max - from - height, width: 0.84, height });
  };
  return shape("svg", { viewBox: `0 0 ${bars.length} ${max}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ticks.map((tick) => shape("path.grid", { d: `M0 ${max - tick}h${bars.length}` })), bars.flatMap((some, at) => some.map(barOf(at))));
}

// ---- time by stage
const PERCENTILES = [[S.half, "one", "p50"], ["95 %", "two", "p95"], ["99 %", "four", "p99"]];

/** Percentiles of each stage as a row: a bar to the median, longer ones behind it to 95 and 99 of 100. */
function stageChart() {
  const latency = shown.totals.latency_ms;
  const rows = Object.entries(S.stages).filter(([stage]) => latency[stage]).map(([stage, name]) => [name, ...PERCENTILES.map(([, , percentile]) => latency[stage][percentile])]);
  const texts = rows.map(([stage, ...times]) => [stage, ...times.map(duration)]), ticks = ticksTo(Math.max(0, ...rows.map((row) => row.at(-1))));
  const bar = (time, at) => el(`i.bar-part.${PERCENTILES[at][1]}`, { style: { width: `${(time / ticks.at(-1)) * 100}%` } });
  return el("figure", heading(S.byStage, PERCENTILES),
    el("div.stages", { role: "img", "aria-label": joined(" ", `${S.byStage}.`, ...texts.map((row) => S.spoken(...row))) },
      rows.map(([stage, ...times]) => [el("span", stage), el("span.track", times.map(bar).reverse())]).flat(), el("span.times", ticks.map((tick) => el("span", duration(tick))))),
    dataTable(S.byStage, PERCENTILES, texts));
}
