"use strict";
// ---- the panel: a list, or one document
const panel = {
  view: null, opener: null,

  open(view, opener) {
    const wasOpen = this.view !== null;
    this.view = view;
    if (opener && !$("panel").contains(opener)) this.opener = opener;
    this.fit();
    if (!wasOpen || opener) requestAnimationFrame(() => $("panel-title")?.focus({ preventScroll: true }));
  },

  close() {
    if (this.view === null) return;
    this.view = null;
    source.show(null);
    this.fit();
    (this.opener?.isConnected ? this.opener : $("question")).focus({ preventScroll: true });
    this.opener = null;
  },

  /** A sheet over the page is a dialog; a column beside it is complementary. */
  fit() {
    const isOpen = this.view !== null, isModal = isOpen && narrow.matches;
    $("panel").hidden = !isOpen;
    $("frame").classList.toggle("open", isOpen);
    for (const view of ["documents", "conversations"]) $(`toggle-${view}`).ariaExpanded = String(this.view === view);
    for (const id of ["bar", "talk"]) $(id).inert = isModal;
    $("panel").role = isModal ? "dialog" : "complementary";
    $("panel").ariaModal = isModal ? "true" : null;
  },

  head(...children) { $("panel").querySelector(".head").replaceChildren(...children); },

  /** Opens a list: its title as head. */
  list(view, title, opener) {
    source.show(null);
    this.open(view, opener);
    this.head(el("div.tools", el("h2", { id: "panel-title", tabindex: -1 }, title), this.closeButton()));
    $("panel-body").scrollTop = 0;
  },

  closeButton() { return iconButton("close", T.close, () => panel.close()); },

  /** Puts nodes into the body; the focus stays on the button of the same place. */
  fill(...nodes) {
    const body = $("panel-body"), buttons = () => [...body.querySelectorAll("button")];
    const focused = buttons().indexOf(document.activeElement);
    delete body.dataset.document;
    body.replaceChildren(...nodes.flat().filter(Boolean));
    if (focused >= 0) (buttons()[focused] ?? $("panel-title")).focus({ preventScroll: true });
  },
};

const rowOf = (title, buttons, line) => el("li", el("div.title", title), el("span.icons", buttons), el("div.sub.one", line));

/** Deletes something once that is confirmed; true if it is gone. */
async function erased(name, text, path) {
  $("confirm-title").textContent = T.deleteTitle(name);
  $("confirm-text").textContent = text;
  if (!await confirmed($("confirm-dialog"))) return false;
  try {
    await request(path, { method: "DELETE" });
  } catch (error) {
    if (error.status !== 404) { showBanner(T.notDeleted(name, error.message)); return false; }
  }
  announce(T.deleted(name));
  return true;
}

/** Asks for a name; the dialog stays open until save(name) has worked. Resolves to false if it was canceled. */
function askName({ title, hint = "", value = "", button, save }) {
  const dialog = $("name-dialog"), problem = $("name-problem");
  for (const [id, text] of [["name-title", title], ["name-hint", hint], ["name-ok", button]]) $(id).textContent = text;
  $("name").value = value;
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
  return confirmed(dialog);
}
