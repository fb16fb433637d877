"use strict";
// ---------------------------------------------------------------- a cited document, opened by a link
/* source?chunk=ID[&chunk=ID...]#at=1&quote=...: the cited chunks in the order of the answer; which one is shown, from 1;
   and a sentence for each. What is behind # is not sent to any server. */
const MAX_CITATIONS = 100;
const WINDOW = 60000;  // characters of the text on each side of the passage
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const chunks = new URLSearchParams(location.search).getAll("chunk").filter((id) => UUID.test(id)).slice(0, MAX_CITATIONS);
const texts = new Map();
let showing = 0;

$("home").href = base + "/";

function place() {
  const given = new URLSearchParams(location.hash.slice(1));
  const at = Number.parseInt(given.get("at") ?? "1", 10) || 1;
  return { index: Math.min(Math.max(at, 1), chunks.length) - 1, quotes: given.getAll("quote") };
}

function note(text) {
  $("note").textContent = text ?? "";
  $("note").hidden = !text;
}

function go(step) {
  const { index, quotes } = place();
  const given = new URLSearchParams(quotes.map((quote) => ["quote", quote]));
  given.set("at", String(index + step + 1));
  history.replaceState(null, "", `#${given}`);
  draw();
}

function steps(index) {
  $("steps").hidden = chunks.length < 2;
  $("position").textContent = T.at(index + 1, chunks.length);
  $("previous").disabled = index === 0;
  $("next").disabled = index === chunks.length - 1;
}

async function draw() {
  const mine = ++showing, isLatest = () => mine === showing;
  if (!chunks.length) { note(T.noPassage); return; }
  const { index, quotes } = place(), quote = (quotes[index] ?? "").slice(0, 1000);
  steps(index);
  try {
    const chunk = await getJson(`/v1/chunks/${chunks[index]}`);
    if (!isLatest()) return;
    const { document: about, locations } = chunk;
    const name = about.title || about.source.replace(/^.*\//, "");
    $("title").textContent = name;
    document.title = `${name} – VectorForge`;
    const where = locations.map(placeOf).filter(Boolean).join(", ") || chunk.heading;
    $("meta").textContent = [about.source === name ? null : about.source, where].filter(Boolean).join(" · ");
    $("original").hidden = false;
    $("original").onclick = () => download(about);
    note(chunk.retired ? T.documentChanged : null);
    if (chunk.retired) { replaceBody([el("div", { class: "text" }, marked(chunk.text, quote))]); return; }
    const shown = await pages(about.id, chunk, quote) ?? await text(about.id, chunk, quote);
    if (!isLatest()) return;
    replaceBody(shown);
    announce(T.citationShown(index + 1, chunks.length, name));
  } catch (error) {
    if (!isLatest()) return;
    replaceBody([]);
    note(error.status === 404 ? T.documentDeleted : error.message);
  }
}

const placeOf = (one) => (one.page ? T.pagePlace(one.page) : one.slide ? T.slidePlace(one.slide) : one.sheet ? [one.sheet, one.range].filter(Boolean).join(" ") : null);

/** The image as a URL that the page's policy allows. */
function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Problem(T.noImage));
    reader.readAsDataURL(blob);
  });
}

function replaceBody(nodes) {
  const body = $("body");
  body.replaceChildren(...nodes);
  (body.querySelector(".quote") ?? body.querySelector("mark, figure"))?.scrollIntoView({ block: "center" });
}

/** Images of the pages with the passage, or null where there are none: then the text is shown. */
async function pages(id, chunk, quote) {
  const numbers = [...new Set(chunk.locations.map((one) => one.page).filter(Boolean))];
  if (!numbers.length) return null;
  const width = Math.min(2000, Math.max(600, Math.round(Math.min(innerWidth, 896) * devicePixelRatio)));
  try {
    return await Promise.all(numbers.map(async (number) => {
      const query = new URLSearchParams({ chunk_id: chunk.id, width: String(width), ...(quote ? { quote } : {}) });
      const response = await request(`/v1/documents/${id}/pages/${number}.png?${query}`, { accept: "image/png" });
      const image = el("img", { src: await dataUrl(await response.blob()), alt: T.pageImage(number, chunk.text) });
      await image.decode();
      return el("figure", {}, el("figcaption", {}, T.page(number)), image);
    }));
  } catch (error) {
    if (![404, 422, 501].includes(error.status)) throw error;
    note(T.noPages);
    return null;
  }
}

async function text(id, chunk, quote) {
  const whole = texts.get(id) ?? await getJson(`/v1/documents/${id}/text`);
  texts.set(id, whole);
  const start = codeUnits(whole.text, chunk.start_offset);
  const end = start + codeUnits(whole.text.slice(start), chunk.end_offset - chunk.start_offset);
  if (whole.text.slice(start, end) !== chunk.text) return [el("div", { class: "text" }, marked(chunk.text, quote))];
  const type = whole.media_type ?? "";
  if (/markdown/.test(type)) return [markdown(whole.text, { start, end }, quote)];
  const isCode = /csv|json|tab-separated|x-/.test(type);
  const page = el("div", { class: isCode ? "text code" : "text" });
  page.append(whole.text.slice(Math.max(0, start - WINDOW), start), marked(chunk.text, quote), whole.text.slice(end, end + WINDOW));
  return [page];
}

/** The part of a Markdown document around the passage, from the start of a line, within a code block if it begins in one. */
function markdown(text, { start, end }, quote) {
  const from = start > WINDOW ? text.lastIndexOf("\n", start - WINDOW) + 1 : 0;
  const fences = text.slice(0, from).match(/^ {0,3}(```|~~~)/gm) ?? [], open = fences.length % 2 ? fences.at(-1).trim() + "\n" : "";
  const shift = open.length - from, found = sentenceIn(text.slice(start, end), quote);
  const at = (offset) => ({ start: start + shift + offset.start, end: start + shift + offset.end });
  return renderedMarkdown(open + text.slice(from, end + WINDOW), at({ start: 0, end: end - start }), found && at(found));
}

/** The passage, with the sentence standing out where it is found word for word. */
function marked(passage, quote) {
  const found = sentenceIn(passage, quote);
  if (!found) return el("mark", { id: "passage", class: "alone" }, passage);
  const { start, end } = found;
  return el("mark", { id: "passage" }, passage.slice(0, start), el("span", { class: "quote" }, passage.slice(start, end)), passage.slice(end));
}

async function download(about) {
  try {
    const response = await request(`/v1/documents/${about.id}/original?redirect=false`, { accept: "*/*" });
    const elsewhere = response.headers.get("Location");
    const url = elsewhere ?? URL.createObjectURL(await response.blob());
    el("a", { href: url, download: about.source.replace(/^.*\//, "") }).click();
    if (!elsewhere) setTimeout(() => URL.revokeObjectURL(url), 60000);
  } catch (error) {
    note(error.message);
  }
}

$("previous").addEventListener("click", () => go(-1));
$("next").addEventListener("click", () => go(1));
addEventListener("hashchange", draw);
addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const button = { ArrowLeft: $("previous"), ArrowRight: $("next") }[event.key];
  if (button && !$("steps").hidden && !button.disabled) button.click();
});
draw();
