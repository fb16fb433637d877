"use strict";
$("open-statistics").href = base + "/statistics";
// ---------------------------------------------------------------- controls
/** Says what went wrong, once; again: what its button tries again. */
function showBanner(text, again, name = T.tryAgain) {
  $("banner").hidden = false;
  $("banner").querySelector("span").textContent = text;
  const button = $("banner").querySelector("button");
  button.textContent = again ? name : T.dismiss;
  button.onclick = () => { $("banner").hidden = true; if (again) again(); else welcome.draw(); };
}

$("collection").addEventListener("change", () => chooseCollection($("collection").value));
$("new-collection").addEventListener("click", newCollection);
$("new-conversation").addEventListener("click", () => conversations.begin());
$("toggle-conversations").addEventListener("click", (event) => conversations.toggle(event.currentTarget));
$("sign-out").addEventListener("click", () => { setKey(null); location.assign(base + "/"); });
$("language").addEventListener("click", () => { remember(localStorage, "vectorforge.language", language === "en" ? "de" : "en"); location.reload(); });
addEventListener("popstate", () => conversations.fromAddress());
$("toggle-documents").addEventListener("click", (event) => {
  if (panel.view === "documents") panel.close(); else documents.open(event.currentTarget);
});
$("scrim").addEventListener("click", () => panel.close());
$("attach").addEventListener("click", () => $("files").click());
$("files").addEventListener("change", () => {
  const files = [...$("files").files].map((blob) => ({ name: blob.name, blob }));
  $("files").value = "";
  documents.add(files);
});
$("latest").addEventListener("click", () => { talk.following = true; talk.follow(); });
$("scroll").addEventListener("scroll", () => {
  const box = $("scroll"), turn = talk.turns.at(-1);
  const overflows = turn && turn.tail.getBoundingClientRect().bottom - turn.head.getBoundingClientRect().top > box.clientHeight;
  talk.following = Boolean(overflows) && box.scrollHeight - box.scrollTop - box.clientHeight < 48;
  talk.drawLatest();
}, { passive: true });
narrow.addEventListener("change", () => panel.fit());
addEventListener("pagehide", () => talk.stop());  // stop the model: the page is closed

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    const inPanel = $("panel").contains(document.activeElement) || narrow.matches;
    if (panel.view !== null && (inPanel || !talk.running)) panel.close();
    else if (talk.running) talk.stop();
  } else if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    if (panel.view !== null && narrow.matches) panel.close();
    $("question").focus();
  } else if (event.key === "Tab" && panel.view !== null && narrow.matches) {
    keepFocusInside(event);
  }
});

/** The page behind the bottom sheet is inert; this keeps Tab from leaving for the browser's own controls. */
function keepFocusInside(event) {
  const stops = [...$("panel").querySelectorAll("button:not(:disabled), a")];
  const at = stops.indexOf(document.activeElement);
  if (event.shiftKey ? at <= 0 : at === stops.length - 1) {
    event.preventDefault();
    stops.at(event.shiftKey ? -1 : 0).focus();
  }
}

// ---------------------------------------------------------------- drag and drop, anywhere
const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
let dragDepth = 0;
function dragging(change) {
  dragDepth = Math.max(0, change === 0 ? 0 : dragDepth + change);
  $("over").hidden = dragDepth === 0;
}
document.addEventListener("dragenter", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  $("over").querySelector("span").textContent = currentCollection() ? T.addTo(currentCollection().name) : T.addToNew;
  dragging(1);
});
document.addEventListener("dragover", (event) => { if (carriesFiles(event)) { event.preventDefault(); event.dataTransfer.dropEffect = "copy"; } });
document.addEventListener("dragleave", (event) => { if (carriesFiles(event)) dragging(-1); });
document.addEventListener("drop", async (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  dragging(0);
  const plain = [...event.dataTransfer.files].map((blob) => ({ name: blob.name, blob }));
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  documents.add(entries.some((entry) => entry.isDirectory) ? distinguish((await Promise.all(entries.map(filesOf))).flat()) : plain);
});

/** Files of a folder by their name alone, as the server keeps them; by their path where two would be the same. */
function distinguish(files) {
  const last = (file) => file.name.split("/").at(-1), seen = new Map();
  for (const file of files) seen.set(last(file), (seen.get(last(file)) ?? 0) + 1);
  return files.map((file) => ({ ...file, name: seen.get(last(file)) > 1 ? file.name.replaceAll("/", " - ") : last(file) }));
}

/** The files of a dropped folder, named by their path in it; hidden files are left out. */
async function filesOf(entry) {
  if (entry.name.startsWith(".")) return [];
  if (entry.isFile) return new Promise((resolve) => entry.file((blob) => resolve([{ name: entry.fullPath.replace(/^\//, ""), blob }]), () => resolve([])));
  const reader = entry.createReader(), found = [];
  for (;;) {
    const some = await new Promise((resolve) => reader.readEntries(resolve, () => resolve([])));
    if (!some.length) return (await Promise.all(found.map(filesOf))).flat();
    found.push(...some);  // a reader gives at most 100 at a time
  }
}

// ---------------------------------------------------------------- start
/** Shows what is ingested elsewhere just now, such as the sample: some ten looks within ten minutes. */
function lookAgain(delay = 2_000) {
  if (delay > 5 * 60_000) return;
  setTimeout(async () => {
    const before = documents.total;
    if (!talk.turns.length && !document.hidden && panel.view === null) await documents.reload();
    lookAgain(before && before === documents.total ? delay * 3 : delay * 1.7);
  }, delay);
}

async function start() {
  try {
    await loadCollections();
    await documents.reload();
  } catch (error) {
    showBanner(T.noDocuments(error.message), start, error.status === 401 ? T.signIn : T.tryAgain);
    return;
  }
  state.ready = true;
  await conversations.fromAddress();
  welcome.draw();
  documents.resumeJobs();
  lookAgain();
  try {
    const { llm = [] } = await getJson("/v1/providers");
    const own = llm.find((p) => p.is_default) ?? llm[0];
    if (own) $("door").textContent = own.extractive ? T.noModel : T.answersBy(own.default_model);
  } catch { /* only a hint */ }
}
controls();
setKey(apiKey);
start();
if (!narrow.matches) $("question").focus();
