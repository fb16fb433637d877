"use strict";
// ---------------------------------------------------------------- collections
const state = { collections: [], collectionId: null, documentTotal: null };
const collectionOf = (id) => state.collections.find((c) => c.id === id) ?? null;
const currentCollection = () => collectionOf(state.collectionId);
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
  state.collections = (await everyCollection()).filter((c) => !c.by_profile);  // those need a profile's number
  state.collectionId = (collectionOf(state.collectionId ?? remembered(localStorage, "vectorforge.collection")) ?? firstCollection())?.id ?? null;
  drawPicker();
}

function firstCollection() {
  const filled = state.collections.filter((c) => c.document_count);
  return filled.find((c) => c.name === "default") ?? filled[0] ?? state.collections[0];
}

function drawPicker() {
  const options = state.collections.map((c) => el("option", { value: c.id, selected: c.id === state.collectionId }, c.name));
  $("collection").replaceChildren(...(options.length ? options : [el("option", { value: "" }, T.noCollection)]));
  $("collection").disabled = !options.length;
  drawCount();
  for (const turn of talk.turns) turn.drawCollection();
}

function drawCount() {
  const count = state.documentTotal ?? currentCollection()?.document_count ?? 0;
  $("document-count").textContent = count ? digits(count) : "";
  $("toggle-documents").setAttribute("aria-label", [T.documents, $("document-count").textContent].join(" ").trim());
  $("question").placeholder = count && nameWorthSaying() ? T.askName(nameWorthSaying()) : T.askDocuments;
}

async function chooseCollection(id) {
  state.collectionId = id;
  state.documentTotal = null;
  remember(localStorage, "vectorforge.collection", id);
  drawPicker();
  await documents.reload();
  documents.resumeJobs();
}

const byName = (collections) => collections.sort((a, b) => a.name.localeCompare(b.name));

async function createCollection(name) {
  const made = await getJson("/v1/collections", { method: "POST", json: { name } });
  state.collections = byName([...state.collections, made]);
  await chooseCollection(made.id);
  announce(T.collectionCreated(made.name));
}

async function newCollection() {
  if (await askName({ title: T.newCollection, hint: T.collectionHint, button: T.create, save: createCollection })) $("question").focus();
}

function renameCollection() {
  const { id, name } = currentCollection();
  return askName({ title: T.renameCollection, value: name, button: T.rename, save: async (wanted) => {
    const changed = await getJson(`/v1/collections/${encodeURIComponent(id)}`, { method: "PATCH", json: { name: wanted } });
    state.collections = byName(state.collections.map((c) => (c.id === id ? changed : c)));
    drawPicker();
    documents.draw();
  } });
}

async function deleteCollection() {
  const { id, name, chunk_count: passages } = currentCollection();
  if (!await confirmDelete(name, T.deleteCollectionText(documents.total, passages ?? 0))) return;
  try {
    await getJson(`/v1/collections/${encodeURIComponent(id)}`, { method: "DELETE" });
  } catch (error) {
    if (error.status !== 404) { showBanner(T.notDeleted(name, error.message)); return; }
  }
  state.collections = state.collections.filter((c) => c.id !== id);
  announce(T.deleted(name));
  await chooseCollection(firstCollection()?.id ?? null);
}
