"use strict";
/* The API explorer: the operations of /openapi.json by group, each with a form that sends its examples. */
const JSON_TYPE = "application/json", MOST_CHARS = 1_000_000;
const ACCEPT = "application/json, text/event-stream, */*;q=0.1";

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

function fillIds() {
  for (const input of document.querySelectorAll("input[data-name]"))
    if (!input.dataset.edited && known.has(input.dataset.name)) input.value = known.get(input.dataset.name);
}

// ---- the form of an operation
class Operation {
  inputs = []; controller = null;

  constructor(verb, path, about) {
    const method = verb.toUpperCase(), text = about.description ?? about.summary ?? "", [first] = text.split(/(?<=\.)\s/);
    Object.assign(this, { method, path, about, text, more: text.slice(first.length).trim(), name: `${method} ${path}`, group: about.tags[0] });
    this.node = el("details.operation", { id: this.name, ontoggle: () => this.open() },
      el("summary", el(`span.method.${verb}`, method), el("code.path", path), el("span.what", prose(first))));
  }

  open() {
    if (!this.node.open || this.form) return;
    const { parameters = [], responses = {}, "x-required-scope": scope } = this.about;
    this.button = el(this.method === "DELETE" ? "button.button.danger" : "button.button.solid", { type: "submit" }, `Send ${this.method}`);
    this.stop = el("button.button", { hidden: true, onclick: () => this.controller?.abort() }, "Stop");
    this.result = el("section.result", { "aria-label": "Response", hidden: true });
    this.form = el("form", { onsubmit: (event) => { event.preventDefault(); this.send(); } },
      parameters.map((parameter) => this.parameter(parameter)), this.bodyInputs(), el("div.actions", this.button, this.stop), this.result);
    this.node.append(el("div.inside", this.more && el("p", prose(this.more)), scope && el("p.note", "Needs a key with the scope ", el("code", scope), "."), this.form,
      folded("Responses", el("ul.fields", Object.entries(responses).map(([status, { description, content }]) => el("li", el("code", status),
        el("p", prose(description)), status < 300 && fieldList(content?.[JSON_TYPE]?.schema)))))));
    fillIds();
  }

  parameter(parameter) {
    const { name, in: place, required, example = "", description } = parameter, schema = resolved(parameter.schema);
    const options = schema.enum ?? (schema.type === "boolean" ? [true, false] : null);
    const input = options ? el("select", ["", ...options].map((value) => new Option(value)))
      : el("input", { "data-name": place === "path" && name, autocomplete: "off", spellcheck: "false", required, oninput: () => { input.dataset.edited = "yes"; } });
    input.value = example;
    this.inputs.push({ parameter, input });
    return el("label", el("span", el("code", name), joined(", ", ` in ${place}`, required && "required", limitsOf(schema))),
      input, el("span.note", prose(description ?? schema.description)));
  }

  bodyInputs() {
    const media = this.about.requestBody?.content?.[JSON_TYPE];
    if (!media) return null;
    const examples = Object.values(media.examples ?? {});
    this.body = el("textarea", { spellcheck: "false", autocomplete: "off", rows: 8 });
    const show = (example) => {
      this.body.value = JSON.stringify(example?.value ?? {}, null, 2).replace(/\{(\w+)\}/g, (all, name) => known.get(name) ?? all);
    };
    show(examples[0]);
    const picker = el("select", { onchange: () => show(examples[picker.selectedIndex]) }, examples.map((one) => el("option", one.summary)));
    return [el("label.whole", "Example", picker), el("label.whole", "Body, JSON", this.body), folded("Fields of the body", fieldList(media.schema))];
  }

  request() {
    let path = this.path;
    const query = new URLSearchParams(), headers = { Accept: ACCEPT };
    for (const { parameter: { name, in: place }, input: { value } } of this.inputs) {
      if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
      else if (value && place === "query") query.append(name, value);
      else if (value) headers[name] = value;
    }
    if (this.body) headers["Content-Type"] = JSON_TYPE;
    return [base + path + (query.size ? `?${query}` : ""), { method: this.method, headers, body: this.body?.value }];
  }

  async send() {
    const [address, options] = this.request(), started = performance.now();
    const { signal } = this.controller = new AbortController();
    const outcome = el("p.outcome", "Waiting for the server"), output = el("pre", { tabindex: 0, role: "region", "aria-label": "Body" });
    const say = (text, isBad) => { outcome.textContent = text; outcome.classList.toggle("bad", isBad); };
    this.result.hidden = this.stop.hidden = false;
    this.button.disabled = true;
    this.result.replaceChildren(outcome, folded("As a command", el("pre", this.command(address, options))), output);
    try {
      const key = apiKey ? { "X-Api-Key": apiKey } : {};  // as on the ask page: not Authorization
      const response = await fetch(address, { ...options, headers: { ...options.headers, ...key }, signal });
      const status = `${response.status} ${response.statusText}`.trim();
      say(status, !response.ok);
      outcome.after(folded("Headers", el("pre", [...response.headers].map((pair) => pair.join(": ")).join("\n"))));
      await this.show(response, output);
      say(`${status}, ${duration(performance.now() - started)}`, !response.ok);
    } catch {
      say(signal.aborted ? `${outcome.textContent}, stopped` : "The server cannot be reached, or closed the connection.", true);
    }
    this.button.disabled = false;
    this.stop.hidden = true;
    announce(outcome.textContent);
  }

  /** Shows the body as it arrives; JSON is indented at its end, and its ids are offered to other operations. */
  async show(response, output) {
    const type = response.headers.get("Content-Type") ?? "";
    if (type && !/json|text|xml|javascript/.test(type)) {
      output.textContent = `${type}, ${(await response.blob()).size.toLocaleString()} bytes`;
      return;
    }
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (let read; reader && !(read = await reader.read()).done;) {
      if (text.length < MOST_CHARS) output.append(read.value.slice(0, MOST_CHARS - text.length));
      text += read.value;
    }
    const found = /json/.test(type) ? parseJson(text) : null;
    if (found === null) return;
    const indented = JSON.stringify(found, null, 2);
    output.textContent = indented.slice(0, MOST_CHARS) + (indented.length > MOST_CHARS ? "\n…" : "");
    if (response.ok) learn(found, kindOf(this.path));
    fillIds();
  }

  command(address, { method, headers, body }) {
    const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
    return [`curl -N -X ${method} ${quoted(location.origin + address)}`, ...apiKey ? ['-H "X-Api-Key: $VECTORFORGE_API_KEY"'] : [],
      ...Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`), ...body === undefined ? [] : [`-d ${quoted(body)}`]].join(" \\\n  ");
  }
}

// ---- the page
function drawGroups(operations) {
  for (const { name, description, "x-displayName": title = name } of api.tags) {
    const members = operations.filter((operation) => operation.group === name), id = `group-${name.replaceAll(" ", "-")}`;
    if (!members.length) continue;
    $("groups").append(el("a", { href: `#${id}` }, title));
    $("list").append(el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title),
      el("p.note", description), members.map((operation) => operation.node)));
  }
}

function filter(operations) {
  const text = $("filter").value.trim().toLowerCase();
  for (const one of operations) one.node.hidden = !`${one.name} ${one.text} ${one.group}`.toLowerCase().includes(text);
}

async function start() {
  $("key").value = apiKey ?? "";
  $("key").oninput = () => setKey($("key").value.trim());
  $("top").onsubmit = (event) => event.preventDefault();
  try {
    api = await getJson("/openapi.json");
  } catch (error) {
    $("banner").hidden = false;
    $("banner").textContent = `The description of the API could not be loaded. ${error.message}`;
    return;
  } finally {
    $("loading").remove();
  }
  const operations = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods).map((operation) => new Operation(operation[0], path, operation[1])));
  drawGroups(operations);
  $("filter").oninput = () => filter(operations);
  const chosen = $(decodeURIComponent(location.hash.slice(1)));
  if (chosen?.matches("details")) chosen.open = true;
  chosen?.scrollIntoView();
}
start();
