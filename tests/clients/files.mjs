// Files and vector stores through the openai package: upload, attach, search, list, delete; prints what it gets.
import OpenAI, { toFile } from "openai";

export async function run(asked, print) {
  const client = new OpenAI({ baseURL: `${asked.url}/v1`, apiKey: asked.key, maxRetries: 0 });
  const { vectorStores, files } = client;

  const all = async (pages) => {
    const found = [];
    for await (const one of pages) found.push(one);
    return found;
  };
  const named = (name) => toFile(Buffer.from(`The ${name} is oiled every Monday.`), `${name}.md`);

  const store = await vectorStores.create({ name: "machines", metadata: { floor: "2" } });
  const uploaded = await vectorStores.files.uploadAndPoll(store.id, await named("press"));
  const batch = await vectorStores.fileBatches.uploadAndPoll(store.id, {
    files: [await named("lathe"), await named("drill")],
  });
  const waiting = await files.create({ file: await named("saw"), purpose: "assistants" });
  const updated = await vectorStores.files.update(uploaded.id, {
    vector_store_id: store.id,
    attributes: { kind: "press" },
  });
  const search = await vectorStores.search(store.id, {
    query: "press",
    filters: { type: "eq", key: "kind", value: "press" },
  });
  const renamed = await vectorStores.update(store.id, { name: "hall", metadata: { floor: "3" } });
  const content = await (await files.content(waiting.id)).text();
  const attached = await all(vectorStores.files.list(store.id, { limit: 1 }));
  const deleted = await files.delete(waiting.id);
  const failure = await files.retrieve(waiting.id).catch(({ status, message }) => ({ status, message }));
  print({ uploaded, batch, updated, found: search.data, renamed, content, attached, deleted, failure });
}
