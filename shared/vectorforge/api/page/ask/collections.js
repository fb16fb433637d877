"use strict";
// ---- collections
const state = { collections: [], collectionId: null };
const collectionOf = (id) => state.collections.find((one) => one.id === id);
const currentCollection = () => collectionOf(state.collectionId);
const nameWorthSaying = () => (currentCollection()?.name === "default" ? null : currentCollection()?.name);
const documentCount = () => documents.total ?? currentCollection()?.document_count ?? 0;

async function loadCollections() {
  state.collections = (await everyCollection()).filter((one) => !one.by_profile);  // those need a profile's number
  state.collectionId = (collectionOf(state.collectionId ?? remembered("localStorage", "vectorforge.collection")) ?? firstCollection())?.id ?? null;
  drawPicker();
}

function firstCollection() {
  const filled = state.collections.filter((one) => one.document_count);
  return filled.find((one) => one.name === "default") ?? filled[0] ?? state.collections[0];
}

function drawPicker() {
  const options = state.collections.map(({ id, name }) => el("option", { value: id, selected: id === state.collectionId }, name));
  $("collection").replaceChildren(...options.length ? options : [new Option(T.noCollection, "")]);
  $("collection").disabled = !options.length;
  drawCount();
  for (const turn of talk.turns) turn.drawCollection();
}

function drawCount() {
  const shown = documentCount() ? digits(documentCount()) : "", name = shown && nameWorthSaying();
  $("document-count").textContent = shown;
  $("toggle-documents").ariaLabel = joined(" ", T.documents, shown);
  $("question").placeholder = name ? T.askName(name) : T.askDocuments;
}

async function chooseCollection(id) {
  state.collectionId = id;
  documents.total = null;
  remember("localStorage", "vectorforge.collection", id);
  drawPicker();
  await documents.load();
  uploads.resumeJobs();
}

function replaceCollections(collections) { state.collections = collections.sort((one, other) => one.name.localeCompare(other.name)); }

async function createCollection(name) {
  const made = await getJson("/v1/collections", { method: "POST", json: { name } });
  replaceCollections([...state.collections, made]);
  await chooseCollection(made.id);
  announce(T.collectionCreated(made.name));
}

async function newCollection() {
  if (await askName({ title: T.newCollection, hint: T.collectionHint, button: T.create, save: createCollection })) $("question").focus();
}

function renameCollection() {
  const { id, name: value } = currentCollection();
  return askName({ title: T.renameCollection, value, button: T.rename, save: async (name) => {
    const changed = await getJson(url`/v1/collections/${id}`, { method: "PATCH", json: { name } });
    replaceCollections(state.collections.map((one) => (one.id === id ? changed : one)));
    drawPicker();
    documents.draw();
  } });
}

async function deleteCollection() {
  const { id, name, chunk_count: passages } = currentCollection();
  if (!await erased(name, T.deleteCollectionText(documentCount(), passages ?? 0), url`/v1/collections/${id}`)) return;
  state.collections = state.collections.filter((one) => one.id !== id);
  await chooseCollection(firstCollection()?.id ?? null);
}
