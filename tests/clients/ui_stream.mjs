// One question through the AI SDK's transport and reader of UI message streams; prints what came of it.
import { DefaultChatTransport, readUIMessageStream } from "ai";

export async function run(asked, print) {
  const headers = asked.key ? { authorization: `Bearer ${asked.key}` } : {};
  const sent = {};
  const transport = new DefaultChatTransport({
    api: `${asked.url}/api/chat`,
    headers,
    body: asked.body,
    fetch: async (url, init) => {
      sent.body = JSON.parse(init.body);
      const response = await fetch(url, init);
      sent.headers = Object.fromEntries(response.headers);
      return response;
    },
  });
  const abort = new AbortController();

  try {
    const stream = await transport.sendMessages({
      chatId: "chat-1",
      trigger: asked.trigger ?? "submit-message",
      messageId: undefined,
      messages: asked.messages ?? [{ id: "m1", role: "user", parts: [{ type: "text", text: asked.text }] }],
      abortSignal: abort.signal,
    });
    const [forChunks, forMessage] = stream.tee();
    const chunks = [];
    const reading = (async () => {
      for await (const chunk of forChunks) {
        chunks.push(chunk);
        if (asked.abortAtText && chunk.type === "text-delta") {
          print({ aborting: chunks[0].messageId });
          abort.abort();
        }
      }
    })().catch((error) => error.name);
    const errors = [];
    let message;
    const states = readUIMessageStream({ stream: forMessage, onError: (error) => errors.push(error.message) });
    for await (const state of states) message = state;
    print({ sent, chunks, message, errors, readingEndedWith: (await reading) ?? null });
  } catch (error) {
    print({ sent, failed: { name: error.name, status: error.statusCode, message: error.message } });
  }
}
