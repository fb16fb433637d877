"use strict";
/* Everything below builds DOM nodes and sets textContent. Text of a server, document or person is never parsed
   as HTML, and nothing in an answer becomes a link or an image: an answer cannot make this page send a request. */

// ---- small DOM tools
const $ = (id) => document.getElementById(id);

/** Adds attributes, styles and listeners ("onclick") if there are any, then children; nothing is left out. */
function fill(node, ...parts) {
  const attributes = parts[0]?.constructor === Object ? parts.shift() : {};
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (value || value === 0) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...parts.flat().filter((child) => child || child === 0));
  return node;
}

function create(namespace, name, parts) {
  const [tag, ...classes] = name.split("."), node = document.createElementNS(namespace, tag);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  if (tag === "button") node.type = "button";
  return fill(node, ...parts);
}

/** An element, such as el("p.quiet", { role: "note" }, text); shape: one of SVG. */
const el = (name, ...parts) => create("http://www.w3.org/1999/xhtml", name, parts);
const shape = (name, ...parts) => create("http://www.w3.org/2000/svg", name, parts);
/** A copy of a template. parts: by selector what is added to a place, as of el(); without anything the place is removed. */
function copyOf(id, parts) {
  const copy = $(id).content.firstElementChild.cloneNode(true);
  for (const [selector, part] of Object.entries(parts)) {
    const place = copy.querySelector(selector);
    if (part) fill(place, ...[part].flat()); else place.remove();
  }
  return copy;
}
const icon = (name) => shape("svg", { "aria-hidden": "true" }, shape("use", { href: "#i-" + name }));
const textButton = (text, onclick) => el("button.text-button", { onclick }, text);
const iconButton = (name, label, onclick, more) => el("button.icon", { "aria-label": label, title: label, onclick, ...more }, icon(name));

const joined = (separator, ...texts) => texts.filter(Boolean).join(separator);
const announce = (text) => { $("status").textContent = text; };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${digits(ms / 1000, ms < 10000 ? 1 : 0)} s`);
const narrow = matchMedia("(max-width: 899px)");

/** An item of "localStorage" or "sessionStorage", which may be forbidden: then only this page knows it. */
function remembered(storage, key) {
  try { return window[storage].getItem(key); } catch { return null; }
}
function remember(storage, key, value) {
  try { if (value) window[storage].setItem(key, value); else window[storage].removeItem(key); } catch { /* as above */ }
}

/** Offset in UTF-16 units of the n-th Unicode code point: the server counts code points, JavaScript does not. */
function codeUnits(text, codePoints) {
  let units = 0;
  for (const character of text) {
    if (codePoints-- <= 0) break;
    units += character.length;
  }
  return units;
}

// ---- dialogs
/** Resolves to true once it is confirmed, to false if it is canceled. */
function confirmed(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => { dialog.onclose = () => resolve(dialog.returnValue === "ok"); });
}
for (const button of document.querySelectorAll("dialog [value=cancel]")) button.onclick = () => button.closest("dialog").close();
