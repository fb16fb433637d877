"use strict";
// ---------------------------------------------------------------- collections
const state = { collections: [], collectionId: null, documentTotal: null, llm: null };
const currentCollection = () => state.collections.find((c) => c.id === state.collectionId) ?? null;
const nameWorthSaying = () => (currentCollection()?.name === "default" ? null : currentCollection()?.name);

const COLLECTIONS_PAGE = 200;

async function everyCollection() {
  const all = [];
  for (;;) {
    const { collections } = await getJson(`/v1/collections?limit=${COLLECTIONS_PAGE}&offset=${all.length}`);
    all.push(...collections);
    if (collections.length < COLLECTIONS_PAGE) return all;
  }
}

async function loadCollections() {
  const collections = (await everyCollection()).filter((c) => !c.by_profile);  // those need a profile's number
  state.collections = collections;
  const wanted = state.collectionId ?? remembered(localStorage, "vectorforge.collection");
  const chosen = collections.find((c) => c.id === wanted) ?? collections.find((c) => c.document_count) ?? collections[0];
  state.collectionId = chosen?.id ?? null;
  drawPicker();
}

function drawPicker() {
  const options = state.collections.map((c) => el("option", { value: c.id, selected: c.id === state.collectionId }, c.name));
  $("collection").replaceChildren(...(options.length ? options : [el("option", { value: "" }, "No collection yet")]));
  $("collection").disabled = !options.length;
  drawCount();
}

function drawCount() {
  const count = state.documentTotal ?? currentCollection()?.document_count ?? 0;
  $("document-count").textContent = count ? count.toLocaleString() : "";
  $("question").placeholder = count && nameWorthSaying() ? `Ask “${nameWorthSaying()}”` : "Ask your documents";
}

async function chooseCollection(id) {
  if (id !== state.collectionId && talk.turns.length) talk.clear();  // a thread is about one collection
  state.collectionId = id;
  state.documentTotal = null;
  remember(localStorage, "vectorforge.collection", id);
  drawPicker();
  await documents.reload();
  documents.resumeJobs();
}

async function createCollection(name) {
  const made = await getJson("/v1/collections", { method: "POST", json: { name } });
  state.collections = [...state.collections, made].sort((a, b) => a.name.localeCompare(b.name));
  await chooseCollection(made.id);
  announce(`Collection ${made.name} created.`);
  return made;
}

async function newCollection() {
  $("collection-name").value = "";
  $("collection-problem").hidden = true;
  if ((await showDialog($("collection-dialog"))) === "ok") $("question").focus();
}

/** The dialog stays open until the server has accepted the name. */
$("collection-dialog").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await createCollection($("collection-name").value.trim());
    $("collection-dialog").close("ok");
  } catch (error) {
    $("collection-problem").textContent = error.message;
    $("collection-problem").hidden = false;
  }
});
