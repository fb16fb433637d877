"use strict";
/* The API explorer: the operations of /openapi.json by group, each with a form that sends its examples. */
$("home").href = base + "/";
$("document").href = base + "/openapi.json";
const JSON_TYPE = "application/json", MOST_CHARS = 1_000_000;
const ACCEPT = "application/json, text/event-stream, */*;q=0.1";

// ---------------------------------------------------------------- ids of earlier responses
const known = new Map();  // by parameter, such as document_id

/** Remembers the ids in a response: "document_id", and "id" by the list or the path that has it. */
function learn(value, kind) {
  if (Array.isArray(value)) return learn(value[0], kind);
  if (!value || typeof value !== "object") return;
  const own = "documents_total" in value ? "job" : kind;
  for (const [name, item] of Object.entries(value)) {
    if (typeof item === "string" && (name === "id" || name.endsWith("_id")))
      known.set(name === "id" ? `${own}_id` : name, item.match(/[0-9a-f-]{36}$/)?.[0] ?? item);
    else if (typeof item === "object") learn(item, name === "data" ? own : singular(name));
  }
}

const singular = (name) => name.replace(/ies$/, "y").replace(/s$/, "");
const kindOf = (path) => singular(path.split("/").filter((part) => part && !part.startsWith("{")).at(-1) ?? "");

function fillIds() {
  for (const input of document.querySelectorAll("input[data-name]"))
    if (!input.dataset.edited && known.has(input.dataset.name)) input.value = known.get(input.dataset.name);
}

// ---------------------------------------------------------------- the form of an operation
class Operation {
  constructor(method, path, about) {
    Object.assign(this, { method: method.toUpperCase(), path, about, inputs: [], controller: null, name: `${method.toUpperCase()} ${path}` });
    this.group = about.tags[0];
    this.text = about.description ?? about.summary ?? "";
    const first = this.text.split(/(?<=\.)\s/)[0];
    this.node = el("details", { class: "operation", id: this.name, ontoggle: () => this.open() },
      el("summary", {}, el("span", { class: `method ${method}` }, this.method), el("code", { class: "path" }, path),
        el("span", { class: "what" }, ...prose(first))));
    this.more = this.text.slice(first.length).trim();
  }

  open() {
    if (!this.node.open || this.form) return;
    this.form = el("form", { onsubmit: (event) => { event.preventDefault(); this.send(); } });
    this.node.append(el("div", { class: "inside" },
      this.more ? el("p", {}, ...prose(this.more)) : null,
      this.about["x-required-scope"] ? el("p", { class: "note" }, "Needs a key with the scope ", el("code", {}, this.about["x-required-scope"]), ".") : null,
      this.form, ...this.references()));
    this.form.append(...(this.about.parameters ?? []).map((parameter) => this.parameter(parameter)), ...this.bodyInputs());
    this.button = el("button", { class: `button ${this.method === "DELETE" ? "danger" : "solid"}`, type: "submit" }, `Send ${this.method}`);
    this.stop = el("button", { class: "button", type: "button", hidden: true, onclick: () => this.controller?.abort() }, "Stop");
    this.result = el("section", { class: "result", "aria-label": "Response", hidden: true });
    this.form.append(el("div", { class: "actions" }, this.button, this.stop), this.result);
    fillIds();
  }

  parameter(parameter) {
    const schema = resolved(parameter.schema), hint = limitsOf(parameter.schema);
    const options = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
    const input = options
      ? el("select", {}, ...["", ...options].map((value) => el("option", { value }, String(value))))
      : el("input", { "data-name": parameter.in === "path" ? parameter.name : null, autocomplete: "off", spellcheck: "false", required: parameter.required,
        oninput: () => { input.dataset.edited = "yes"; } });
    if (parameter.example !== undefined) input.value = parameter.example;
    this.inputs.push({ parameter, input });
    return el("label", {}, el("span", {}, el("code", {}, parameter.name), ` in ${parameter.in}`, parameter.required ? ", required" : "", hint ? `, ${hint}` : ""),
      input, el("span", { class: "note" }, ...prose(parameter.description ?? schema.description)));
  }

  bodyInputs() {
    const media = this.about.requestBody?.content?.[JSON_TYPE];
    if (!media) return [];
    const examples = Object.values(media.examples ?? {});
    this.body = el("textarea", { spellcheck: "false", autocomplete: "off", rows: 8 });
    const show = (example) => {
      this.body.value = JSON.stringify(example?.value ?? {}, null, 2).replace(/\{(\w+)\}/g, (all, name) => known.get(name) ?? all);
    };
    show(examples[0]);
    const picker = el("select", { onchange: () => show(examples[picker.selectedIndex]) }, ...examples.map((one) => el("option", {}, one.summary)));
    return [el("label", { class: "whole" }, "Example", picker), el("label", { class: "whole" }, "Body, JSON", this.body),
      folded("Fields of the body", fieldList(media.schema))];
  }

  references() {
    const responses = Object.entries(this.about.responses ?? {});
    return [folded("Responses", el("ul", { class: "fields" }, ...responses.map(([status, response]) => el("li", {}, el("code", {}, status),
      el("p", {}, ...prose(response.description)), status < 300 ? fieldList(response.content?.[JSON_TYPE]?.schema) : null))))];
  }

  request() {
    let path = this.path;
    const query = new URLSearchParams(), headers = { Accept: ACCEPT };
    for (const { parameter: { name, in: place }, input } of this.inputs) {
      if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(input.value));
      else if (input.value && place === "query") query.append(name, input.value);
      else if (input.value) headers[name] = input.value;
    }
    if (this.body) headers["Content-Type"] = JSON_TYPE;
    const url = base + path + (query.size ? `?${query}` : "");
    return { url, headers, body: this.body?.value };
  }

  async send() {
    const { url, headers, body } = this.request(), started = performance.now();
    const controller = this.controller = new AbortController();
    const status = el("p", { class: "outcome" }, "Waiting for the server"), output = el("pre", { tabindex: "0", role: "region", "aria-label": "Body" });
    this.result.hidden = this.stop.hidden = false;
    this.button.disabled = true;
    this.result.replaceChildren(status, folded("As a command", el("pre", {}, this.command(url, headers, body))), output);
    try {
      const key = apiKey ? { "X-Api-Key": apiKey } : {};  // as on the ask page: not Authorization
      const response = await fetch(url, { method: this.method, headers: { ...headers, ...key }, body, signal: controller.signal });
      const told = () => `${response.status} ${response.statusText}`.trim();
      status.textContent = told();
      status.classList.toggle("bad", !response.ok);
      status.after(folded("Headers", el("pre", {}, [...response.headers].map((pair) => pair.join(": ")).join("\n"))));
      await this.show(response, output);
      status.textContent = `${told()}, ${duration(performance.now() - started)}`;
    } catch {
      status.textContent = controller.signal.aborted ? `${status.textContent}, stopped` : "The server cannot be reached, or closed the connection.";
      status.classList.add("bad");
    } finally {
      this.button.disabled = false;
      this.stop.hidden = true;
      announce(status.textContent);
    }
  }

  /** Shows the body as it arrives; JSON is indented at its end, and its ids are offered to other operations. */
  async show(response, output) {
    const type = response.headers.get("Content-Type") ?? "";
    if (type && !/json|text|xml|javascript/.test(type)) {
      output.textContent = `${type}, ${(await response.blob()).size.toLocaleString()} bytes`;
      return;
    }
    const decoder = new TextDecoder();
    let text = "";
    for (const reader = response.body?.getReader(); reader;) {
      const { done, value } = await reader.read();
      const part = done ? decoder.decode() : decoder.decode(value, { stream: true });
      if (text.length < MOST_CHARS) output.append(part.slice(0, MOST_CHARS - text.length));
      text += part;
      if (done) break;
    }
    const found = /json/.test(type) ? parseJson(text) : null;
    if (found === null) return;
    const indented = JSON.stringify(found, null, 2);
    output.textContent = indented.slice(0, MOST_CHARS) + (indented.length > MOST_CHARS ? "\n…" : "");
    if (response.ok) learn(found, kindOf(this.path));
    fillIds();
  }

  command(url, headers, body) {
    const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
    const sent = { ...(apiKey ? { "X-Api-Key": "$VECTORFORGE_API_KEY" } : {}), ...headers };
    return [`curl -N -X ${this.method} ${quoted(location.origin + url)}`,
      ...Object.entries(sent).map(([name, value]) => `-H ${name === "X-Api-Key" ? `"${name}: ${value}"` : quoted(`${name}: ${value}`)}`),
      ...(body === undefined ? [] : [`-d ${quoted(body)}`])].join(" \\\n  ");
  }
}

// ---------------------------------------------------------------- the page
function drawGroups(operations) {
  for (const { name, description, "x-displayName": title = name } of api.tags) {
    const members = operations.filter((operation) => operation.group === name);
    if (!members.length) continue;
    const id = `group-${name.replaceAll(" ", "-")}`;
    $("groups").append(el("a", { href: `#${id}` }, title));
    $("list").append(el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title),
      el("p", { class: "note" }, description), ...members.map((operation) => operation.node)));
  }
}

function filter(operations) {
  const text = $("filter").value.trim().toLowerCase();
  for (const one of operations) one.node.hidden = !`${one.name} ${one.text} ${one.group}`.toLowerCase().includes(text);
  for (const section of $("list").children) section.hidden = !section.querySelector(".operation:not([hidden])");
}

async function start() {
  $("key").value = apiKey ?? "";
  $("key").addEventListener("input", () => setKey($("key").value.trim()));
  $("top").addEventListener("submit", (event) => event.preventDefault());
  try {
    api = await getJson("/openapi.json");
  } catch (error) {
    $("banner").hidden = false;
    $("banner").textContent = `The description of the API could not be loaded. ${error.message}`;
    return;
  } finally {
    $("loading").remove();
  }
  const operations = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, about]) => new Operation(method, path, about)));
  drawGroups(operations);
  $("filter").addEventListener("input", () => filter(operations));
  const chosen = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (chosen?.matches("details")) chosen.open = true;
  chosen?.scrollIntoView();
}
start();
