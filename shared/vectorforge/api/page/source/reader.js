"use strict";
// ---- a cited document, opened by a link
/* source?chunk=ID[&chunk=ID...]#at=1&quote=...: the cited chunks in the order of the answer; which one is shown, from 1;
   and a sentence for each. What is behind # is sent to no server. */
const MAX_CITATIONS = 100;
const WINDOW = 60000;  // characters of the text on each side of the passage
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const chunks = new URLSearchParams(location.search).getAll("chunk").filter((id) => UUID.test(id)).slice(0, MAX_CITATIONS);
let showing = 0;

function place() {
  const given = new URLSearchParams(location.hash.slice(1)), at = Number.parseInt(given.get("at"), 10) || 1;
  return { given, index: Math.min(Math.max(at, 1), chunks.length) - 1, quotes: given.getAll("quote") };
}

function note(text = "") {
  $("note").textContent = text;
  $("note").hidden = !text;
}

function go(step) {
  const { given, index } = place();
  given.set("at", index + step + 1);
  history.replaceState(null, "", `#${given}`);
  draw();
}

async function draw() {
  const mine = ++showing, isLatest = () => mine === showing;
  if (!chunks.length) { note(T.noPassage); return; }
  const { index, quotes } = place(), quote = (quotes[index] ?? "").slice(0, 1000);
  $("steps").hidden = chunks.length < 2;
  $("position").textContent = T.at(index + 1, chunks.length);
  $("previous").disabled = index === 0;
  $("next").disabled = index === chunks.length - 1;
  try {
    const chunk = await getJson(`/v1/chunks/${chunks[index]}`);
    if (!isLatest()) return;
    const { document: about, locations } = chunk, name = about.title || about.source.replace(/^.*\//, "");
    $("title").textContent = name;
    document.title = `${name} – VectorForge`;
    $("meta").textContent = joined(" · ", about.source !== name && about.source, joined(", ", ...locations.map(placeOf)) || headingAt(chunk, quote));
    $("original").hidden = false;
    $("original").onclick = () => download(about);
    note(chunk.retired ? T.documentChanged : "");
    const shown = chunk.retired ? [passageAlone(chunk, quote)] : await pages(about.id, chunk, quote) ?? await text(about.id, chunk, quote);
    if (!isLatest()) return;
    $("body").replaceChildren(...shown);
    ($("body").querySelector(".quote") ?? $("body").querySelector("mark, figure"))?.scrollIntoView({ block: "center" });
    announce(T.citationShown(index + 1, chunks.length, name));
  } catch (error) {
    if (!isLatest()) return;
    $("body").replaceChildren();
    note(error.status === 404 ? T.documentDeleted : error.message);
  }
}

const placeOf = ({ page, slide, sheet, range }) => (page ? T.pagePlace(page) : slide ? T.slidePlace(slide) : sheet && joined(" ", sheet, range));
/** The headings above the quoted sentence, where the passage has several; else those above the passage. */
function headingAt({ text, heading, locations }, quote) {
  const at = sentenceIn(text, quote)?.start ?? -1;
  return locations.findLast((one) => one.heading && one.offsets && codeUnits(text, one.offsets[0]) <= at)?.heading ?? heading;
}

const passageAlone = (chunk, quote) => el("div.text", markOf(chunk.text, quote));

/** The image as a URL that the policy allows. */
const dataUrl = (blob) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(new Problem(T.noImage));
  reader.readAsDataURL(blob);
});

/** Images of the pages with the passage, or null where there are none: then the text is shown. */
async function pages(id, chunk, quote) {
  const numbers = [...new Set(chunk.locations.map((one) => one.page).filter(Boolean))];
  if (!numbers.length) return null;
  const width = Math.min(2000, Math.max(600, Math.round(Math.min(innerWidth, 896) * devicePixelRatio)));
  try {
    return await Promise.all(numbers.map(async (number) => {
      const query = new URLSearchParams({ chunk_id: chunk.id, width, ...(quote && { quote }) });
      const response = await request(`/v1/documents/${id}/pages/${number}.png?${query}`, { accept: "image/png" });
      const image = el("img", { src: await dataUrl(await response.blob()), alt: T.pageImage(number, chunk.text) });
      await image.decode();
      return el("figure", el("figcaption", T.page(number)), image);
    }));
  } catch (error) {
    if (![404, 422, 501].includes(error.status)) throw error;
    note(T.noPages);
    return null;
  }
}

async function text(id, chunk, quote) {
  const { text: whole, media_type: type = "" } = await textOf(id), span = spanOf(whole, chunk), { start, end } = span;
  if (whole.slice(start, end) !== chunk.text) return [passageAlone(chunk, quote)];
  if (/markdown/.test(type)) return [markdownAround(whole, span, quote, WINDOW, "h2")];
  return [el(/csv|json|tab-separated|x-/.test(type) ? "div.text.code" : "div.text",
    whole.slice(Math.max(0, start - WINDOW), start), markOf(chunk.text, quote), whole.slice(end, end + WINDOW))];
}

async function download(about) {
  try {
    const response = await request(`/v1/documents/${about.id}/original?redirect=false`, { accept: "*/*" });
    const elsewhere = response.headers.get("Location"), href = elsewhere ?? URL.createObjectURL(await response.blob());
    el("a", { href, download: about.source.replace(/^.*\//, "") }).click();
    if (!elsewhere) setTimeout(() => URL.revokeObjectURL(href), 60000);
  } catch (error) {
    note(error.message);
  }
}

$("previous").onclick = () => go(-1);
$("next").onclick = () => go(1);
addEventListener("hashchange", draw);
addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const button = { ArrowLeft: $("previous"), ArrowRight: $("next") }[event.key];
  if (!$("steps").hidden) button?.click();
});
draw();
