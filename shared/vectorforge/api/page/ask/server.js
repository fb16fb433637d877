"use strict";
// ---------------------------------------------------------------- asking the server
class Problem extends Error {
  /** isPassing: whether the same request may well work a little later. */
  constructor(message, { status = 0, requestId = null, isPassing = status === 429 || status >= 500 } = {}) {
    super(message);
    Object.assign(this, { status, requestId, isPassing });
  }
}

function problemFrom(body, status, requestId) {
  const fields = Array.isArray(body?.errors) ? body.errors.map((e) => [e.field, e.message].filter(Boolean).join(": ")) : [];
  const detail = typeof body?.detail === "string" ? body.detail : "";
  const text = [detail.replace(/^RAG query error: /, "") || body?.title || T.status[status] || T.otherStatus(status)];
  for (const field of fields) if (!text[0].includes(field)) text.push(field);
  return new Problem(text.join(" "), { status, requestId: body?.request_id || requestId });
}

function parseJson(text) {
  try { return JSON.parse(text); } catch { return null; }
}

let apiKey = remembered(sessionStorage, "vectorforge.key");
let keyQuestion = null;

/** Asks for a key once, however many requests need it. Resolves to false when the person declines. */
function askForKey(usedKey) {
  if (usedKey !== apiKey) return Promise.resolve(true);  // another request was given a new one meanwhile
  keyQuestion ??= (async () => {
    $("key-text").textContent = usedKey ? T.keyRefused : T.keyAsked;
    $("key").value = "";
    const given = (await showDialog($("key-dialog"))) === "ok" ? $("key").value.trim() : "";
    $("key").value = "";
    if (given) setKey(given);
    return Boolean(given);
  })().finally(() => { keyQuestion = null; });
  return keyQuestion;
}

function setKey(key) {
  apiKey = key || null;
  remember(sessionStorage, "vectorforge.key", apiKey);
  if ($("sign-out")) $("sign-out").hidden = !apiKey;
}

/** Where the server is mounted, such as "/prod" under a stage of API Gateway; "" at the root. */
const base = location.pathname.replace(/(\/(source|statistics|docs))?\/*$/, "").replace(/^\/+/, "/");

/** A response with a good status; everything else is thrown as a Problem. Asks for a key on 401. */
async function request(path, { method = "GET", json, signal, accept = "application/json", headers: more = {}, keepalive = false } = {}) {
  for (;;) {
    const usedKey = apiKey;
    const headers = { Accept: accept, ...more };
    // Not Authorization, which API Gateway does not read and CloudFront needs for itself.
    if (usedKey) headers["X-Api-Key"] = usedKey;
    if (json !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(base + path, { method, headers, signal, keepalive, body: json === undefined ? undefined : JSON.stringify(json) });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Problem(T.unreachable, { isPassing: true });
    }
    if (response.ok) return response;
    if (response.status === 401 && await askForKey(usedKey)) {
      signal?.throwIfAborted();
      continue;
    }
    const body = parseJson(await response.text().catch(() => ""));
    throw problemFrom(body, response.status, response.headers.get("X-Request-Id"));
  }
}

async function getJson(path, options) {
  const response = await request(path, options);
  if (response.status === 204) return null;
  try { return await response.json(); } catch { throw new Problem(T.unreadable); }
}

/** Uploads with progress, which fetch() cannot report. */
async function upload(path, files, onProgress) {
  for (;;) {
    const usedKey = apiKey;
    const form = new FormData();
    for (const file of files) form.append("files", file.blob, file.name);
    const { status, text, requestId } = await new Promise((resolve, reject) => {
      const call = new XMLHttpRequest();
      call.open("POST", base + path);
      call.setRequestHeader("Accept", "application/json");
      if (usedKey) call.setRequestHeader("X-Api-Key", usedKey);
      call.upload.onprogress = (event) => { if (event.lengthComputable) onProgress(event.loaded / event.total); };
      call.onload = () => resolve({ status: call.status, text: call.responseText, requestId: call.getResponseHeader("X-Request-Id") });
      call.onerror = () => reject(new Problem(T.uploadBroke));
      call.send(form);
    });
    if (status === 401 && await askForKey(usedKey)) continue;
    const body = parseJson(text);
    if (status < 200 || status > 299) throw problemFrom(body, status, requestId);
    if (!body) throw new Problem(T.unreadable);
    return body;
  }
}

/** Server-sent events of a response body, as the HTML standard parses them, yielding {event, data, id}; without an id of its own it is null. */
async function* serverEvents(body, onBytes) {
  const reader = body.getReader();
  const decoder = new TextDecoder();  // keeps the bytes of a character that is cut between two reads
  let buffer = "", name = "", data = [], id = null;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      onBytes();
      buffer += done ? decoder.decode() : decoder.decode(value, { stream: true });
      let from = 0;
      for (;;) {
        const at = buffer.slice(from).search(/[\r\n]/);
        if (at < 0) break;
        const end = from + at;
        if (buffer[end] === "\r" && end + 1 === buffer.length && !done) break;  // its \n may come with the next read
        const line = buffer.slice(from, end);
        from = end + (buffer[end] === "\r" && buffer[end + 1] === "\n" ? 2 : 1);
        if (line === "") {
          if (data.length) yield { event: name || "message", data: data.join("\n"), id };
          name = ""; data = []; id = null;
          continue;
        }
        const colon = line.indexOf(":");
        if (colon === 0) continue;  // a comment: keep-alive
        const field = colon < 0 ? line : line.slice(0, colon);
        const content = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") name = content;
        else if (field === "data") data.push(content);
        else if (field === "id") id = content;
      }
      buffer = buffer.slice(from);
      if (done) return;  // an event without its blank line is not an event
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
