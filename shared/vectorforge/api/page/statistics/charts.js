"use strict";
// ---- charts of the statistics, drawn as SVG
const S = T.stats, whole = (value) => digits(Math.round(value));
const short = (value) => new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 }).format(value);
const share = (part, all) => (all ? `${digits((part / all) * 100, part && part / all < 0.1 ? 1 : 0)} %` : "–");

const timeText = (start, day, hour) => new Date(start).toLocaleString(language, shown.bucket === "hour" ? hour : { ...day, timeZone: "UTC" });
const label = (start) => timeText(start, { day: "numeric", month: "short" }, { hour: "2-digit", minute: "2-digit" });
const fullLabel = (start) => timeText(start, { weekday: "short", day: "numeric", month: "long" }, { weekday: "short", hour: "2-digit", minute: "2-digit" });

const swatch = (tone) => el(`i.swatch.${tone}`, { "aria-hidden": "true" });
const legend = (parts) => el("ul.legend", parts.map(([name, tone]) => el("li", swatch(tone), name)));
const heading = (title, parts = []) => el("figcaption", el("h2", title), parts.length > 1 && legend(parts));

/** rows: each its name, then its cells. */
const tableOf = (columns, rows) => el("table", el("thead", el("tr", columns.map((name) => el("th", { scope: "col" }, name)))),
  el("tbody", rows.map(([name, ...cells]) => el("tr", el("th", { scope: "row" }, name), cells.map((cell) => el("td", cell))))));
const scroller = (name, ...table) => el("div.scroller", { tabindex: 0, role: "region", "aria-label": name }, tableOf(...table));
const dataTable = (title, ...table) => el("details", el("summary", S.asTable), scroller(`${title}: ${S.asTable}`, ...table));

/** The smallest of 1, 2, 2.5, 5 times a power of ten that makes at most four steps. */
function niceStep(top) {
  const raw = top / 4 || 1, power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw);
}

/** An SVG of a height, drawn anew for each width. */
function plotOf(height, attributes, drawn) {
  const plot = shape("svg.plot", { height, ...attributes });
  new ResizeObserver(() => {
    const width = plot.clientWidth, box = `0 0 ${width} ${height}`;
    if (!width || plot.getAttribute("viewBox") === box) return;
    plot.setAttribute("viewBox", box);
    plot.replaceChildren(...drawn(width));
  }).observe(plot);
  return plot;
}

// ---- numbers over the intervals
/** Bars (stacked) or lines; parts are [name, tone, value of an interval or null]. */
function timeChart(title, parts, { format, bars = false, wide = false, height = 170 }) {
  const intervals = shown.series, name = wide ? "figure.wide" : "figure";
  const drawn = parts.filter(([, , value]) => intervals.some((interval) => value(interval)));
  if (!drawn.length) return el(name, heading(title), el("p.note", S.none));
  const text = (value) => (value === null ? "–" : format(value));
  const tip = el("div.tip", { hidden: true });
  let at = null;

  const plot = plotOf(height, { role: "group", tabindex: 0, "aria-label": S.chart(title) }, (width) => {
    show(null);
    return plotted(scaleOf(width, height, format, drawn, bars), drawn, format, bars);
  });
  const figure = el(name, heading(title, drawn), plot, tip,
    dataTable(title, ["", ...drawn.map(([part]) => part)], intervals.map((interval) => [fullLabel(interval.start), ...drawn.map(([, , value]) => text(value(interval)))])));

  function show(to, isSpoken) {
    at = to;
    tip.hidden = at === null;
    plot.querySelector(".here")?.remove();
    if (at === null) return;
    const { left, step } = scaleOf(plot.clientWidth, height, format, drawn, bars), interval = intervals[at];
    plot.prepend(shape("rect.here", { x: left + at * step, y: 0, width: step, height: height - 22 }));
    tip.replaceChildren(el("b", fullLabel(interval.start)), el("ul", drawn.map(([part, tone, value]) => el("li", swatch(tone), el("span", part), el("span", text(value(interval)))))));
    const start = left + at * step, room = figure.clientWidth - tip.offsetWidth, isRight = start + step / 2 > figure.clientWidth / 2;
    tip.style.left = `${Math.max(0, Math.min(room, isRight ? start - tip.offsetWidth - 8 : start + step + 8))}px`;
    tip.style.top = `${plot.getBoundingClientRect().top - figure.getBoundingClientRect().top + 4}px`;
    if (isSpoken) announce(tip.innerText.replaceAll("\n", ", "));
  }
  plot.onpointermove = plot.onpointerdown = (event) => {
    const { left, step } = scaleOf(plot.clientWidth, height, format, drawn, bars);
    const under = Math.floor((event.clientX - plot.getBoundingClientRect().left - left) / step);
    show(intervals[under] ? under : null);
  };
  plot.onpointerleave = (event) => { if (event.pointerType === "mouse") show(null); };
  plot.onblur = () => show(null);
  plot.onkeydown = (event) => {
    const last = intervals.length - 1;
    const to = { ArrowRight: Math.min(last, (at ?? -1) + 1), ArrowLeft: Math.max(0, (at ?? last + 1) - 1), Home: 0, End: last, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  };
  return figure;
}

/** Where intervals and values are in a plot: {left, step, floor, max, tick, y}. */
function scaleOf(width, height, format, parts, bars) {
  const heights = shown.series.map((interval) => parts.map(([, , value]) => value(interval) ?? 0)).map((values) => (bars ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values)));
  const top = Math.max(...heights, 0), tick = format === whole ? Math.max(1, niceStep(top)) : niceStep(top || 1);
  const max = Math.max(tick, Math.ceil(top / tick) * tick), floor = height - 22;
  const left = Math.max(...[0, max].map((value) => format(value).length)) * 7.5 + 10;
  return { width, height, max, tick, left, step: (width - left) / shown.series.length, y: (value) => floor - (value / max) * (floor - 8) };
}

function plotted({ width, height, max, tick, left, step, y }, parts, format, bars) {
  const made = [], every = Math.ceil(shown.series.length / Math.max(1, Math.floor((width - left) / (shown.bucket === "hour" ? 80 : 64))));
  const middle = (at) => left + (at + 0.5) * step;
  for (let value = 0; value <= max * 1.0001; value += tick) made.push(
    shape("line.grid", { x1: left, x2: width, y1: y(value), y2: y(value) }), shape("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  shown.series.forEach((interval, at) => {
    if (at % every === 0) made.push(shape("text", { x: middle(at), y: height - 4, "text-anchor": "middle" }, label(interval.start)));
    if (!bars) return;
    const gap = step > 6 ? Math.min(step * 0.2, 10) : step * 0.1;
    let under = 0;
    for (const [, tone, value] of parts) {
      const amount = value(interval) ?? 0, tall = Math.max(y(under) - y(under + amount), 1);
      if (amount <= 0) continue;
      made.push(shape(`rect.bar-part.${tone}`, { x: left + at * step + gap / 2, y: y(under) - tall, width: Math.max(step - gap, 0.5), height: tall }));
      under += amount;
    }
  });
  return bars ? made : [...made, ...parts.toReversed().flatMap(([, tone, value]) => curve(tone, shown.series.map(value), middle, y))];
}

/** A line with gaps where there is no value; a value without neighbors is a dot. */
function curve(tone, values, x, y) {
  const known = (at) => (values[at] ?? null) !== null, dots = [];
  let path = "";
  values.forEach((found, at) => {
    if (!known(at)) return;
    path += `${known(at - 1) ? "L" : "M"}${x(at).toFixed(1)} ${y(found).toFixed(1)}`;
    if (!known(at - 1) && !known(at + 1)) dots.push(shape(`circle.dot.${tone}`, { cx: x(at), cy: y(found), r: 4 }));
  });
  return [shape(`path.curve.${tone}`, { d: path || "M0 0" }), ...dots];
}

// ---- time by stage
const PERCENTILES = [[S.half, "one", "p50"], ["95 %", "two", "p95"], ["99 %", "four", "p99"]];

/** Percentiles of each stage as a row: a bar to the median, lines to 95 and 99 of 100. */
function stageChart() {
  const latency = shown.totals.latency_ms;
  const rows = Object.entries(S.stages).filter(([stage]) => latency[stage]).map(([stage, name]) => [name, ...PERCENTILES.map(([, , percentile]) => latency[stage][percentile])]);
  const texts = rows.map(([stage, ...times]) => [stage, ...times.map(duration)]);
  return el("figure", heading(S.byStage, PERCENTILES),
    plotOf(170, { role: "img", "aria-label": joined(" ", `${S.byStage}.`, ...texts.map((row) => S.spoken(...row))) }, (width) => stageRows(rows, width)),
    dataTable(S.byStage, ["", ...PERCENTILES.map(([name]) => name)], texts));
}

function stageRows(rows, width) {
  const left = 96, right = 8, top = Math.max(...rows.map((row) => row.at(-1))), tick = niceStep(top), max = Math.ceil(top / tick) * tick;
  const x = (value) => left + (value / max) * (width - left - right), row = 148 / Math.max(rows.length, 1), made = [];
  for (let value = 0; value <= max * 1.0001; value += tick) {
    const anchor = value === 0 ? "start" : value >= max ? "end" : "middle";
    made.push(shape("line.grid", { x1: x(value), x2: x(value), y1: 0, y2: 148 }), shape("text", { x: x(value), y: 166, "text-anchor": anchor }, duration(value)));
  }
  rows.forEach(([stage, ...times], at) => {
    const middle = row * (at + 0.5), bar = (value, place) => shape(`rect.bar-part.${PERCENTILES[place][1]}`, { x: left, y: middle - 7, width: Math.max(x(value) - left, 1), height: 14, rx: 2 });
    made.push(shape("text", { x: left - 10, y: middle + 4, "text-anchor": "end" }, stage), ...times.map(bar).reverse());
  });
  return made;
}
