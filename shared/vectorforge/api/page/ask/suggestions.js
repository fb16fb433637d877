"use strict";
// ---- empty state, with questions that the documents answer
const MAX_SUGGESTIONS = 3, MAX_TRIALS = 8, SUGGESTION_CHARS = 60;

/** The questions about the sample of `vectorforge up` whose page has been read; none where other documents are. */
function sampleQuestions({ list, total }) {
  if (!list.length || !list.every((one) => one.metadata?.sample)) return [];
  return T.sampleQuestions.map(([question, page]) => ({ question, found: (result) => result.source.endsWith(page) }))
    .filter(({ found }) => list.length < total || list.some(found));
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
    const id = state.collectionId, newest = documents.list.slice(0, MAX_SUGGESTIONS), key = JSON.stringify([id, newest.map((one) => one.id), documents.total]);
    if (!id || this.key === key) return;
    Object.assign(this, { key, list: [] });
    let trials = 0;
    try {
      const sample = sampleQuestions(documents), perDocument = sample.length ? [sample] : [];
      for (const about of sample.length ? [] : newest) perDocument.push(await questionsAbout(about));
      for (let at = 0; perDocument.some((some) => at < some.length); at++) {  // one of each document first
        for (const candidate of perDocument.flatMap((some) => some[at] ?? [])) {
          if (this.list.length === MAX_SUGGESTIONS || trials++ === MAX_TRIALS || this.key !== key || talk.turns.length) return;
          if (!await isAnswerable(candidate, id) || this.key !== key) continue;
          this.list.push(candidate.question);
          welcome.draw();
        }
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
    $("first").hidden = documents.total > 0;
    $("ready").hidden = !documents.total;
    $("ready-title").textContent = name ? T.askName(name) : T.askDocuments;
    $("ready-lead").textContent = T.readyLead(documents.total);
    const shown = $("suggestions").children, { list } = suggestions;
    if (list.length === shown.length && list.every((question, at) => shown[at].textContent === question)) return;  // keeps the focus
    $("suggestions").replaceChildren(...list.map((question) => el("li", el("button", { onclick: () => talk.ask(question) }, question, icon("right")))));
  },
};
