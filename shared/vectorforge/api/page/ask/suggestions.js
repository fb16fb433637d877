"use strict";
// ---- empty state, with questions that the documents answer
const MAX_SUGGESTIONS = 3, MAX_TRIALS = 8, SUGGESTION_CHARS = 60;

/** The questions about the sample of `vectorforge up` whose page has been read; none where other documents are. */
function sampleQuestions({ items, total }) {
  if (!items.length || !items.every((one) => one.metadata?.sample)) return [];
  return T.sampleQuestions.map(([question, page]) => ({ question, found: (result) => result.source.endsWith(page) }))
    .filter(({ found }) => items.length < total || items.some(found));
}

/** Questions about a document: about its first headings, then about all of it. */
async function questionsAbout(about) {
  const { chunks } = await getJson(url`/v1/documents/${about.id}/chunks?limit=30`);
  const title = sourceName(about), isOwn = (result) => result.document_id === about.id;
  const headings = [...new Set(chunks.map((chunk) => chunk.heading))].filter((heading) => heading && headingOf({ ...about, heading }))
    .map((heading) => [heading, heading.split(" > ").at(-1)]).filter(([, last]) => last.length <= SUGGESTION_CHARS && last !== title);
  return [
    ...headings.slice(0, 2).map(([heading, last]) => ({ question: T.aboutHeading(title, last), found: (result) => isOwn(result) && result.heading === heading })),
    { question: T.aboutDocument(title.length <= SUGGESTION_CHARS ? title : title.slice(0, SUGGESTION_CHARS - 3) + "…"), found: isOwn },
  ];
}

/** True if the passages that a question is about are among the first that a search for it finds. */
async function isAnswerable({ question, found }, collection) {
  const { results } = await getJson("/v1/search", { method: "POST", json: { query: question, collection, top_k: 3 } });
  return results.some(found);
}

const suggestions = {
  key: null, list: [],

  /** Finds those of the documents that are listed now, once; each is offered as soon as a search has found its passages. */
  async find() {
    const id = state.collectionId, newest = documents.items.slice(0, MAX_SUGGESTIONS), key = JSON.stringify([id, newest.map((one) => one.id), documents.total]);
    if (!id || documents.total === null || this.key === key) return;
    Object.assign(this, { key, list: [] });
    try {
      const sample = sampleQuestions(documents), perDocument = sample.length ? [sample] : await Promise.all(newest.map(questionsAbout));
      const oneOfEachFirst = [0, 1, 2].flatMap((at) => perDocument.flatMap((some) => some[at] ?? []));
      for (const candidate of oneOfEachFirst.slice(0, MAX_TRIALS)) {
        if (this.list.length === MAX_SUGGESTIONS || this.key !== key || talk.turns.length) return;
        if (!await isAnswerable(candidate, id) || this.key !== key) continue;
        this.list.push(candidate.question);
        welcome.draw();
      }
    } catch { /* an extra */ }
  },
};

const welcome = {
  draw() {
    const isHidden = talk.turns.length > 0 || !$("banner").hidden || !state.ready, name = nameWorthSaying();
    $("welcome").hidden = isHidden;
    $("talk-title").hidden = !isHidden;
    if (isHidden) return;
    suggestions.find();
    $("first").hidden = documentCount() > 0;
    $("ready").hidden = !documentCount();
    $("ready-title").textContent = name ? T.askName(name) : T.askDocuments;
    $("ready-lead").textContent = T.readyLead(documentCount());
    const shown = $("suggestions").children, { list } = suggestions;
    if (list.length === shown.length && list.every((question, at) => shown[at].textContent === question)) return;  // keeps the focus
    $("suggestions").replaceChildren(...list.map((question) => el("li", el("button", { onclick: () => talk.ask(question) }, question, icon("right")))));
  },
};
