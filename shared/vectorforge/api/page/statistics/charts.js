"use strict";
// ---------------------------------------------------------------- charts of the statistics, drawn as SVG
const S = T.stats, whole = (value) => digits(Math.round(value));
const short = (value) => new Intl.NumberFormat(language, { notation: "compact", maximumFractionDigits: 1 }).format(value);
const dollars = (value) => "$" + (value === 0 || value >= 100 ? whole(value) : value >= 0.1 ? digits(value, 2) : value.toLocaleString(language, { maximumSignificantDigits: 2 }));
const share = (part, all) => (all ? `${digits((part / all) * 100, part && part / all < 0.1 ? 1 : 0)} %` : "–");

const moment = (start) => new Date(start);
const label = (start) => (shown.bucket === "hour"
  ? moment(start).toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit" })
  : moment(start).toLocaleDateString(language, { day: "numeric", month: "short", timeZone: "UTC" }));
const fullLabel = (start) => (shown.bucket === "hour"
  ? moment(start).toLocaleString(language, { weekday: "short", hour: "2-digit", minute: "2-digit" })
  : moment(start).toLocaleDateString(language, { weekday: "short", day: "numeric", month: "long", timeZone: "UTC" }));

function legend(parts) {
  return el("ul", { class: "legend" }, ...parts.map(([name, tone]) => el("li", {}, el("i", { class: `swatch ${tone}`, "aria-hidden": "true" }), name)));
}

/** The smallest of 1, 2, 2.5, 5 times a power of ten that makes at most four steps. */
function niceStep(top) {
  const raw = top / 4 || 1, power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw);
}

/** Bars (stacked) or lines over the intervals; parts are [name, tone, value of an interval or null]. */
function timeChart(title, parts, { format, bars = false, wide = false, height = 170 }) {
  const intervals = shown.series;
  const drawn = parts.filter(([, , value]) => intervals.some((interval) => value(interval)));
  if (!drawn.length) return el("figure", { class: wide ? "wide" : null }, el("figcaption", {}, el("h2", {}, title)), el("p", { class: "note" }, S.none));
  const tip = el("div", { class: "tip", hidden: true });
  const plot = shape("svg", { class: "plot", role: "group", tabindex: "0", height, "aria-label": S.chart(title) });
  const figure = el("figure", { class: wide ? "wide" : null },
    el("figcaption", {}, el("h2", {}, title), drawn.length > 1 ? legend(drawn) : null),
    plot, tip, dataTable(title, drawn, format));
  const state = { at: null, width: 0 };

  const show = (at, spoken) => {
    state.at = at;
    tip.hidden = at === null;
    plot.querySelector(".here")?.remove();
    if (at === null) return;
    const { left, step } = geometry(state.width, format, drawn, bars);
    plot.prepend(shape("rect", { class: "here", x: left + at * step, y: 0, width: step, height: height - 22 }));
    const interval = intervals[at];
    tip.replaceChildren(el("b", {}, fullLabel(interval.start)), el("ul", {}, ...drawn.map(([name, tone, value]) => el("li", {},
      el("i", { class: `swatch ${tone}`, "aria-hidden": "true" }), el("span", {}, name), el("span", {}, value(interval) === null ? "–" : format(value(interval)))))));
    const middle = left + (at + 0.5) * step, room = figure.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(room, middle > figure.clientWidth / 2 ? middle - step / 2 - tip.offsetWidth - 8 : middle + step / 2 + 8))}px`;
    tip.style.top = `${plot.getBoundingClientRect().top - figure.getBoundingClientRect().top + 4}px`;
    if (spoken) announce(tip.innerText.replaceAll("\n", ", "));
  };
  const under = (event) => {
    const { left, step } = geometry(state.width, format, drawn, bars);
    const at = Math.floor((event.clientX - plot.getBoundingClientRect().left - left) / step);
    return at >= 0 && at < intervals.length ? at : null;
  };
  plot.addEventListener("pointermove", (event) => show(under(event)));
  plot.addEventListener("pointerdown", (event) => show(under(event)));
  plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(null); });
  plot.addEventListener("blur", () => show(null));
  plot.addEventListener("keydown", (event) => {
    const last = intervals.length - 1, from = state.at ?? (event.key === "ArrowRight" ? -1 : last + 1);
    const to = { ArrowRight: Math.min(last, from + 1), ArrowLeft: Math.max(0, from - 1), Home: 0, End: last, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(to, true);
  });
  new ResizeObserver(() => {
    const width = plot.clientWidth;
    if (!width || width === state.width) return;
    state.width = width;
    show(null);
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    plot.replaceChildren(...plotted(width, height, drawn, format, bars));
  }).observe(plot);
  return figure;
}

function heightOf(parts, interval, bars) {
  const values = parts.map(([, , value]) => value(interval) ?? 0);
  return bars ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values);
}

function geometry(width, format, parts, bars) {
  const top = Math.max(...shown.series.map((interval) => heightOf(parts, interval, bars)), 0);
  const tick = format === whole ? Math.max(1, niceStep(top)) : niceStep(top || 1);
  const max = Math.max(tick, Math.ceil(top / tick) * tick);
  const left = Math.max(...[0, max].map((value) => format(value).length)) * 7.5 + 10;
  return { max, tick, left, step: (width - left) / shown.series.length };
}

function plotted(width, height, parts, format, bars) {
  const { max, tick, left, step } = geometry(width, format, parts, bars), floor = height - 22;
  const y = (value) => floor - (value / max) * (floor - 8);
  const made = [];
  for (let value = 0; value <= max * 1.0001; value += tick) {
    made.push(shape("line", { class: "grid", x1: left, x2: width, y1: y(value), y2: y(value) }));
    made.push(shape("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  const every = Math.ceil(shown.series.length / Math.max(1, Math.floor((width - left) / (shown.bucket === "hour" ? 80 : 64))));
  shown.series.forEach((interval, at) => {
    const x = left + at * step;
    if (at % every === 0) made.push(shape("text", { x: x + step / 2, y: height - 4, "text-anchor": "middle" }, label(interval.start)));
    if (!bars) return;
    const gap = step > 6 ? Math.min(step * 0.2, 10) : step * 0.1;
    let under = 0;
    for (const [, tone, value] of parts) {
      const amount = value(interval) ?? 0;
      if (amount <= 0) continue;
      const tall = Math.max(y(under) - y(under + amount), 1);
      made.push(shape("rect", { class: `bar-part ${tone}`, x: x + gap / 2, y: y(under) - tall, width: Math.max(step - gap, 0.5), height: tall }));
      under += amount;
    }
  });
  if (!bars) for (const [, tone, value] of [...parts].reverse()) made.push(...curve(tone, value, (at) => left + (at + 0.5) * step, y));
  return made;
}

/** A line with gaps where there is no value; a value without neighbors is a dot. */
function curve(tone, value, x, y) {
  const values = shown.series.map(value), known = (at) => values[at] !== null && values[at] !== undefined;
  let path = "";
  const dots = [];
  values.forEach((found, at) => {
    if (!known(at)) return;
    path += `${known(at - 1) ? "L" : "M"}${x(at).toFixed(1)} ${y(found).toFixed(1)}`;
    if (!known(at - 1) && !known(at + 1)) dots.push(shape("circle", { class: `dot ${tone}`, cx: x(at), cy: y(found), r: 4 }));
  });
  return [shape("path", { class: `curve ${tone}`, d: path || "M0 0" }), ...dots];
}

function dataTable(title, parts, format) {
  const details = el("details", {}, el("summary", {}, S.asTable));
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    details.append(el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": `${title}: ${S.asTable}` }, el("table", {},
      el("thead", {}, el("tr", {}, ...["", ...parts.map(([name]) => name)].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...shown.series.map((interval) => el("tr", {}, el("th", { scope: "row" }, fullLabel(interval.start)),
        ...parts.map(([, , value]) => el("td", {}, value(interval) === null ? "–" : format(value(interval))))))))));
  });
  return details;
}


/** Percentiles of each stage as a row: a bar to the median, lines to 95 and 99 of 100. */
function stageChart() {
  const measured = Object.keys(S.stages).filter((stage) => shown.totals.latency_ms[stage]);
  const parts = [[S.half, "one"], ["95 %", "two"], ["99 %", "four"]];
  const plot = shape("svg", { class: "plot", role: "img", height: 170, "aria-label": `${S.byStage}. ${measured.map(spoken).join(" ")}` });
  new ResizeObserver(() => {
    const width = plot.clientWidth;
    if (!width || plot.getAttribute("viewBox") === `0 0 ${width} 170`) return;
    plot.setAttribute("viewBox", `0 0 ${width} 170`);
    plot.replaceChildren(...stageRows(measured, width));
  }).observe(plot);
  return el("figure", {}, el("figcaption", {}, el("h2", {}, S.byStage), legend(parts)), plot,
    el("details", {}, el("summary", {}, S.asTable), el("div", { class: "scroller" }, el("table", {},
      el("thead", {}, el("tr", {}, ...["", S.half, "95 %", "99 %"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...measured.map((stage) => el("tr", {}, el("th", { scope: "row" }, S.stages[stage]),
        ...["p50", "p95", "p99"].map((p) => el("td", {}, duration(shown.totals.latency_ms[stage][p]))))))))));

  function spoken(stage) {
    const { p50, p95, p99 } = shown.totals.latency_ms[stage];
    return S.spoken(S.stages[stage], ...[p50, p95, p99].map(duration));
  }
}

function stageRows(measured, width) {
  const left = 96, right = 8, latency = shown.totals.latency_ms;
  const top = Math.max(...measured.map((stage) => latency[stage].p99)), tick = niceStep(top), max = Math.ceil(top / tick) * tick;
  const x = (value) => left + (value / max) * (width - left - right), row = 148 / Math.max(measured.length, 1);
  const made = [];
  for (let value = 0; value <= max * 1.0001; value += tick) {
    made.push(shape("line", { class: "grid", x1: x(value), x2: x(value), y1: 0, y2: 148 }));
    const anchor = value === 0 ? "start" : value >= max ? "end" : "middle";
    made.push(shape("text", { x: x(value), y: 166, "text-anchor": anchor }, duration(value)));
  }
  measured.forEach((stage, at) => {
    const middle = row * (at + 0.5), { p50, p95, p99 } = latency[stage];
    made.push(shape("text", { x: left - 10, y: middle + 4, "text-anchor": "end" }, S.stages[stage]));
    for (const [value, tone] of [[p99, "four"], [p95, "two"], [p50, "one"]])
      made.push(shape("rect", { class: `bar-part ${tone}`, x: left, y: middle - 7, width: Math.max(x(value) - left, 1), height: 14, rx: 2 }));
  });
  return made;
}

function table(title, first, rows, name) {
  const columns = [first, S.questions, S.failed, S.half, "95 %", S.tokens, S.cost, S.ratedGood];
  const cells = (row) => [whole(row.queries), whole(row.outcomes.error ?? 0), row.latency_ms.total ? duration(row.latency_ms.total.p50) : "–",
    row.latency_ms.total ? duration(row.latency_ms.total.p95) : "–", short(row.prompt_tokens + row.completion_tokens),
    dollars(row.cost_usd) + (row.unpriced ? " *" : ""), rated(row) ? T.at(whole(row.rated_up), whole(rated(row))) : "–"];
  return el("section", { class: "wide", "aria-label": title }, el("h2", {}, title),
    el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": S.tableOf(title) }, el("table", {},
      el("thead", {}, el("tr", {}, ...columns.map((column) => el("th", { scope: "col" }, column)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, el("th", { scope: "row" }, name(row)), ...cells(row).map((cell) => el("td", {}, cell))))))),
    rows.some((row) => row.unpriced) ? el("p", { class: "note" }, S.unpricedNote) : null);
}

const rated = ({ rated_up: up, rated_down: down }) => up + down;
