"use strict";
// ---- controls
/** Says what went wrong, once; again: what its button tries again. */
function showBanner(text, again, name = T.tryAgain) {
  const [said, button] = $("banner").children;
  $("banner").hidden = false;
  said.textContent = text;
  button.textContent = again ? name : T.dismiss;
  button.onclick = () => { $("banner").hidden = true; (again || (() => welcome.draw()))(); };
}

const onClick = {
  "new-collection": newCollection,
  "new-conversation": () => conversations.begin(),
  "toggle-conversations": (opener) => conversations.toggle(opener),
  "toggle-documents": (opener) => documents.toggle(opener),
  "all-documents": () => documents.open(),
  "previous-source": () => source.step(-1),
  "next-source": () => source.step(1),
  "close-panel": () => panel.close(),
  "sign-out": () => { setKey(null); location.assign(base + "/"); },
  language: () => { remember("localStorage", "vectorforge.language", language === "en" ? "de" : "en"); location.reload(); },
  scrim: () => panel.close(),
  latest: () => { talk.following = true; talk.follow(); },
};
for (const [id, act] of Object.entries(onClick)) $(id).onclick = () => act($(id));
document.addEventListener("click", ({ target }) => { if (target.closest(".attach")) $("files").click(); });
$("collection").onchange = () => chooseCollection($("collection").value);
$("files").onchange = () => {
  addFiles($("files").files);
  $("files").value = "";
};
$("scroll").addEventListener("scroll", () => talk.scrolled(), { passive: true });
narrow.addEventListener("change", () => panel.fit());
addEventListener("popstate", () => conversations.fromAddress());
addEventListener("online", () => talk.running?.stream?.wake?.());
addEventListener("pagehide", () => talk.stop());  // stop the model: the page is closed

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    const inPanel = $("panel").contains(document.activeElement) || narrow.matches;
    if (panel.view !== null && (inPanel || !talk.running)) panel.close(); else talk.stop();
  } else if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    if (narrow.matches) panel.close();
    $("question").focus();
  }
});

// ---- drag and drop, anywhere
for (const type of ["dragenter", "dragover", "dragleave", "drop"]) document.addEventListener(type, (event) => {
  if (!event.dataTransfer?.types.includes("Files")) return;
  event.preventDefault();
  const isOver = type !== "drop" && (type !== "dragleave" || event.relatedTarget !== null), name = currentCollection()?.name;
  $("over").hidden = !isOver;
  if (isOver) $("over").querySelector("span").textContent = name ? T.addTo(name) : T.addToNew;
  if (type === "drop") addDropped(event.dataTransfer);
});

/** Adds dropped files and those of folders, named by their name alone, as the server keeps them; by their path where two would be the same. */
async function addDropped({ files, items }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) { addFiles(files); return; }
  const found = (await Promise.all(entries.map(filesOf))).flat(), isUnique = ({ name }) => found.filter(({ blob }) => blob.name === name).length === 1;
  uploads.add(found.map(({ path, blob }) => ({ blob, name: isUnique(blob) ? blob.name : path.replaceAll("/", " - ") })));
}

const addFiles = (files) => uploads.add([...files].map((blob) => ({ name: blob.name, blob })));

/** The files of a dropped folder with their paths in it; hidden ones are left out. */
async function filesOf(entry) {
  const result = (of, method) => new Promise((resolve) => of[method](resolve, () => resolve([])));
  if (entry.name.startsWith(".")) return [];
  if (entry.isFile) return [await result(entry, "file")].flat().map((blob) => ({ path: entry.fullPath.slice(1), blob }));
  const reader = entry.createReader(), found = [];
  for (let some; (some = await result(reader, "readEntries")).length;) found.push(...some);  // at most 100 at a time
  return (await Promise.all(found.map(filesOf))).flat();
}

// ---- start
/** Shows what is ingested elsewhere just now, such as the sample: some ten looks within ten minutes. */
async function lookAgain() {
  for (let delay = 2_000; delay <= 5 * 60_000;) {
    await pause(delay);
    const before = documents.total;
    if (!talk.turns.length && !document.hidden && panel.view === null) await documents.load();
    delay *= before && before === documents.total ? 3 : 1.7;
  }
}

async function start() {
  try {
    await loadCollections();
    await documents.load();
  } catch (error) {
    showBanner(T.noDocuments(error.message), start, error.status === 401 ? T.signIn : T.tryAgain);
    return;
  }
  state.ready = true;
  await conversations.fromAddress();
  welcome.draw();
  uploads.resumeJobs();
  lookAgain();
  try {
    const { llm = [] } = await getJson("/v1/providers");
    const own = llm.find((one) => one.is_default) ?? llm[0];
    if (own) $("door").textContent = own.extractive ? T.noModel : T.answersBy(own.default_model);
  } catch { /* only a hint */ }
}
controls();
setKey(apiKey);
start();
if (!narrow.matches) $("question").focus();
