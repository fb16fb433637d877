"use strict";
/* Everything below builds DOM nodes and sets textContent. Text of a server, document or person is never parsed
   as HTML, and nothing in an answer becomes a link or an image: an answer cannot make this page send a request. */

// ---------------------------------------------------------------- small DOM tools
const $ = (id) => document.getElementById(id);

/** A node with attributes, listeners ("onclick") and children (nodes or text). */
function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes = {}, ...children) => make(document.createElement(tag), attributes, children);
const shape = (tag, attributes = {}, ...children) => make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const icon = (name) => shape("svg", { "aria-hidden": "true" }, shape("use", { href: "#i-" + name }));

const announce = (text) => { $("status").textContent = text; };
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${digits(ms / 1000, ms < 10000 ? 1 : 0)} s`);
const narrow = matchMedia("(max-width: 899px)");

function remembered(store, key) {
  try { return store.getItem(key); } catch { return null; }  // storage may be forbidden
}
function remember(store, key, value) {
  try { if (value) store.setItem(key, value); else store.removeItem(key); } catch { /* then only this page knows */ }
}

/** Offset in UTF-16 units of the n-th Unicode code point: the server counts code points, JavaScript does not. */
function codeUnits(text, codePoints) {
  let unit = 0;
  for (let seen = 0; seen < codePoints && unit < text.length; seen++) {
    unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
  }
  return unit;
}

/** Where a passage has a sentence word for word, or null. */
function sentenceIn(passage, quote, moreThan = 1) {
  const words = quote.split(/\s+/).filter(Boolean).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const found = words.length > moreThan ? new RegExp(words.join("\\s+"), "i").exec(passage) : null;
  return found && { start: found.index, end: found.index + found[0].length };
}

// ---------------------------------------------------------------- dialogs
/** Resolves to "ok" or "cancel". */
function showDialog(dialog) {
  return new Promise((resolve) => {
    dialog.returnValue = "cancel";
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
    dialog.showModal();
  });
}
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.querySelector("button[value=cancel]").addEventListener("click", () => dialog.close("cancel"));
  dialog.addEventListener("cancel", () => { dialog.returnValue = "cancel"; });
}

function confirmDelete(name, text) {
  $("confirm-title").textContent = T.deleteTitle(name);
  $("confirm-text").textContent = text;
  return showDialog($("confirm-dialog")).then((choice) => choice === "ok");
}

/** Asks for a name; the dialog stays open until save(name) has worked. Resolves to false if it was cancelled. */
function askName({ title, hint = "", value = "", button, save }) {
  const dialog = $("name-dialog"), problem = $("name-problem");
  $("name-title").textContent = title;
  $("name-hint").textContent = hint;
  $("name").value = value;
  $("name-ok").textContent = button;
  problem.hidden = true;
  dialog.onsubmit = async (event) => {
    event.preventDefault();
    try {
      await save($("name").value.trim());
      dialog.close("ok");
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  };
  return showDialog(dialog).then((choice) => choice === "ok");
}

/** A button of words. */
const textButton = (text, onclick) => el("button", { class: "text-button", type: "button", onclick }, text);
/** A button of an icon, with its name. */
const iconButton = (name, label, onclick, more = {}) => el("button", { class: "icon", type: "button", "aria-label": label, title: label, onclick, ...more }, icon(name));
