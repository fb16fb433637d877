"use strict";
/* The API explorer: sends the forms of the operations, which the server has written into the page. */
const MOST_CHARS = 1_000_000;

// ---- ids of earlier responses
const known = new Map();  // by parameter, such as document_id

/** Remembers the ids in a response: "document_id", and "id" by the list or the path that has it. */
function learn(value, kind) {
  if (Array.isArray(value)) return learn(value[0], kind);
  if (!value || typeof value !== "object") return;
  const own = "documents_total" in value ? "job" : kind;
  for (const [name, item] of Object.entries(value)) {
    if (typeof item === "object") learn(item, name === "data" ? own : singular(name));
    else if (typeof item === "string" && /^id$|_id$/.test(name)) known.set(name === "id" ? `${own}_id` : name, item.match(/[0-9a-f-]{36}$/)?.[0] ?? item);
  }
}

const singular = (name) => name.replace(/ies$/, "y").replace(/s$/, "");
const kindOf = (path) => singular(path.split("/").filter((part) => part && !part.startsWith("{")).at(-1) ?? "");
const withIds = (text) => text.replace(/\{(\w+)\}/g, (all, name) => known.get(name) ?? all);

/** Puts known ids into the paths and bodies that nobody has edited. */
function fillIds() {
  for (const field of document.querySelectorAll("[data-in=path], textarea")) {
    if (field.value === field.defaultValue) field.value = field.defaultValue = known.get(field.name) ?? withIds(field.value);
  }
}

// ---- sending a form
function requestOf(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams(), headers = { Accept: "application/json, text/event-stream, */*;q=0.1" }, body = form.querySelector("textarea")?.value;
  for (const { name, value, dataset } of form.querySelectorAll("[data-in]")) {
    if (dataset.in === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
    else if (value && dataset.in === "query") query.append(name, value);
    else if (value) headers[name] = value;
  }
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return [base + path + (query.size ? `?${query}` : ""), { method: form.dataset.method, headers, body }];
}

async function send(form) {
  const [address, options] = requestOf(form), started = performance.now(), controller = new AbortController();
  const [button, stop] = form.querySelectorAll(".actions button"), result = copyOf("result", { ".command pre": commandOf(address, options) });
  const [outcome, headers, , output] = result.children;
  const say = (text, isBad) => { outcome.textContent = text; outcome.classList.toggle("bad", isBad); };
  form.querySelector(".result")?.remove();
  form.append(result);
  stop.onclick = () => controller.abort();
  button.disabled = true;
  stop.hidden = false;
  try {
    const key = apiKey ? { "X-Api-Key": apiKey } : {};  // as on the ask page: not Authorization
    const response = await fetch(address, { ...options, headers: { ...options.headers, ...key }, signal: controller.signal });
    const status = `${response.status} ${response.statusText}`.trim();
    say(status, !response.ok);
    headers.hidden = false;
    headers.querySelector("pre").textContent = [...response.headers].map((pair) => pair.join(": ")).join("\n");
    await show(response, output, kindOf(form.dataset.path));
    say(`${status}, ${duration(performance.now() - started)}`, !response.ok);
  } catch {
    say(controller.signal.aborted ? `${outcome.textContent}, stopped` : "The server cannot be reached, or closed the connection.", true);
  }
  button.disabled = false;
  stop.hidden = true;
  announce(outcome.textContent);
}

/** Shows the body as it arrives; JSON is indented at its end, and its ids are offered to other operations. */
async function show(response, output, kind) {
  const type = response.headers.get("Content-Type") ?? "";
  if (type && !/json|text|xml|javascript/.test(type)) {
    output.textContent = `${type}, ${digits((await response.blob()).size)} bytes`;
    return;
  }
  let text = "";
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let read; reader && !(read = await reader.read()).done;) {
    if (text.length < MOST_CHARS) output.append(read.value.slice(0, MOST_CHARS - text.length));
    text += read.value;
  }
  const found = /json/.test(type) ? parseJson(text) : null;
  if (found === null) return;
  const indented = JSON.stringify(found, null, 2);
  output.textContent = indented.slice(0, MOST_CHARS) + (indented.length > MOST_CHARS ? "\n…" : "");
  if (response.ok) learn(found, kind);
  fillIds();
}

function commandOf(address, { method, headers, body }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  return [`curl -N -X ${method} ${quoted(location.origin + address)}`, ...apiKey ? ['-H "X-Api-Key: $VECTORFORGE_API_KEY"'] : [],
    ...Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`), ...body === undefined ? [] : [`-d ${quoted(body)}`]].join(" \\\n  ");
}

// ---- the page
addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.id !== "top") send(event.target);
});
addEventListener("change", ({ target }) => {
  if (target.matches(".examples")) target.form.querySelector("textarea").value = withIds(target.value);
});
$("key").value = apiKey ?? "";
$("key").oninput = () => setKey($("key").value.trim());
$("filter").oninput = () => {
  const wanted = $("filter").value.trim().toLowerCase();
  for (const one of document.querySelectorAll(".operation")) {
    const [summary, more] = one.querySelectorAll(":scope > summary, .inside > p:not(.note)");
    one.hidden = !joined(" ", one.id, summary.textContent, more?.textContent, one.dataset.group).toLowerCase().includes(wanted);
  }
};
const chosen = $(decodeURIComponent(location.hash.slice(1)));
if (chosen?.matches("details")) chosen.open = true;
chosen?.scrollIntoView();
