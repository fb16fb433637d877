"use strict";
// ---- the panel: a list, or one document
const panel = {
  view: null, opener: null,  // "documents", "conversations" or "source"; what had the focus before

  open(view, title, opener) {
    this.view = $("panel").dataset.view = view;
    $("panel-title").textContent = title;
    $("panel-body").scrollTop = 0;
    if (opener && !$("panel").contains(opener)) this.opener = opener;
    this.fit();
    requestAnimationFrame(() => $("panel-title").focus({ preventScroll: true }));
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

  /** Puts nodes into the body; the focus stays on the button of the same place. */
  fill(...nodes) {
    const body = $("panel-body"), buttons = () => [...body.querySelectorAll("button")];
    const focused = buttons().indexOf(document.activeElement);
    delete body.dataset.document;
    body.replaceChildren(...nodes.flat().filter(Boolean));
    if (focused >= 0) (buttons()[focused] ?? $("panel-title")).focus({ preventScroll: true });
  },
};

const PAGE_SIZE = 50;

/** A list of the panel, loaded page by page. It has view, draw(), and page(offset): {items, hasMore} and other fields to set. */
class PanelList {
  items = []; hasMore = false; isLoaded = false; problem = null; loads = 0;

  toggle(opener) {
    if (panel.view === this.view) panel.close(); else this.open(opener);
  }

  open(opener) {
    source.show(null);
    panel.open(this.view, T[this.view], opener);
    this.draw();
  }

  /** Loads the first page, or what follows the items that are shown. */
  async load(offset = 0) {
    const load = ++this.loads, before = this.items.slice(0, offset);
    let change;
    try {
      const { items, ...rest } = await this.page(offset);
      change = { ...rest, items: [...before, ...items.filter(({ id }) => !before.some((known) => known.id === id))], problem: null };
    } catch (error) {
      change = { items: before, problem: error.message };
    }
    if (load !== this.loads) return;
    Object.assign(this, change, { isLoaded: true });
    this.draw();
  }

  remove(id) {
    this.items = this.items.filter((one) => one.id !== id);
    this.draw();
  }

  /** The rows, then what can be done; none: what is said without any. */
  nodes(rows, none) {
    return [rows.length > 0 && el("ul.rows", { id: `${this.view}-list` }, rows),
      ...this.problem ? [el("p.quiet", this.problem), textButton(T.tryAgain, () => this.load())]
        : this.hasMore ? [textButton(T.showMore, () => this.load(this.items.length))]
          : [this.isLoaded && !rows.length && el("p.quiet", none)]];
  }

  row(title, buttons, line) { return el("li", el("div.title", title), el("span.icons", buttons), el("div.sub.one", line)); }
}

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
