"use strict";
// ---- asking the server
class Problem extends Error {
  /** isPassing: whether the same request may well work a little later. */
  constructor(message, { status = 0, requestId = null, isPassing = status === 429 || status >= 500 } = {}) {
    super(message);
    Object.assign(this, { status, requestId, isPassing });
  }
}

function problemFrom(body, status, requestId) {
  const fields = Array.isArray(body?.errors) ? body.errors.map((e) => joined(": ", e.field, e.message)) : [];
  const detail = typeof body?.detail === "string" ? body.detail.replace(/^RAG query error: /, "") : "";
  const text = detail || body?.title || T.status[status] || T.otherStatus(status);
  return new Problem(joined(" ", text, ...fields.filter((field) => !text.includes(field))), { status, requestId: body?.request_id || requestId });
}

function parseJson(text) {
  try { return JSON.parse(text); } catch { return null; }
}

let apiKey = remembered("sessionStorage", "vectorforge.key");
let keyQuestion = null;

/** Asks for a key once, however many requests need it. Resolves to false when the person declines. */
function askForKey(usedKey) {
  if (usedKey !== apiKey) return true;  // another request was given a new one meanwhile
  keyQuestion ??= (async () => {
    $("key-text").textContent = usedKey ? T.keyRefused : T.keyAsked;
    const given = await confirmed($("key-dialog")) && $("key").value.trim();
    $("key").value = "";
    if (given) setKey(given);
    return Boolean(given);
  })().finally(() => { keyQuestion = null; });
  return keyQuestion;
}

function setKey(key) {
  apiKey = key || null;
  remember("sessionStorage", "vectorforge.key", apiKey);
  if ($("sign-out")) $("sign-out").hidden = !apiKey;
}

/** Where the server is mounted, such as "/prod" under a stage of API Gateway; "" at the root. */
const base = location.pathname.replace(/(\/(source|statistics|docs))?\/*$/, "").replace(/^\/+/, "/");
for (const link of document.querySelectorAll("a[data-to]")) link.href = base + link.dataset.to;
/** A path with its values encoded. */
const url = (parts, ...values) => String.raw({ raw: parts }, ...values.map(encodeURIComponent));

/** A response with a good status; everything else is thrown as a Problem. Asks for a key on 401. */
async function request(path, { json, accept = "application/json", headers = {}, onProgress, ...options } = {}) {
  for (;;) {
    const usedKey = apiKey, init = { ...options, headers: { Accept: accept, ...headers } };
    // Not Authorization, which API Gateway does not read and CloudFront needs for itself.
    if (usedKey) init.headers["X-Api-Key"] = usedKey;
    if (json) {
      init.headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(json);
    }
    let response;
    try {
      response = await (onProgress ? upload(base + path, init, onProgress) : fetch(base + path, init));
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new Problem(onProgress ? T.uploadBroke : T.unreachable, { isPassing: true });
    }
    if (response.ok) return response;
    if (response.status === 401 && await askForKey(usedKey)) {
      init.signal?.throwIfAborted();
      continue;
    }
    throw problemFrom(parseJson(await response.text().catch(() => "")), response.status, response.headers.get("X-Request-Id"));
  }
}

/** fetch() with the progress of the body, which it does not report itself. */
function upload(address, { headers, body }, onProgress) {
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest();
    call.open("POST", address);
    for (const header of Object.entries(headers)) call.setRequestHeader(...header);
    call.upload.onprogress = (event) => { if (event.lengthComputable) onProgress(event.loaded / event.total); };
    call.onload = () => resolve(new Response(call.responseText, { status: call.status, headers: { "X-Request-Id": call.getResponseHeader("X-Request-Id") ?? "" } }));
    call.onerror = reject;
    call.send(body);
  });
}

async function getJson(path, options) {
  const response = await request(path, options);
  if (response.status === 204) return null;
  return response.json().catch(() => { throw new Problem(T.unreadable); });
}

/** All collections, page by page. */
async function everyCollection() {
  for (const all = [];;) {
    const { collections } = await getJson(`/v1/collections?limit=200&offset=${all.length}`);
    all.push(...collections);
    if (collections.length < 200) return all;
  }
}
