// Runs the route of docs/use/ai-sdk.md as Next.js does: a Request in, a Response out. Prints what comes out of it.
import { readFileSync } from "node:fs";
import { transformSync } from "esbuild";

export async function run(asked, print) {
  process.env.VECTORFORGE_URL = asked.url;
  process.env.VECTORFORGE_API_KEY = asked.key;
  const [, source] = readFileSync(asked.document, "utf8").match(/```ts\n(export async function POST.*?)```/s);
  const { code } = transformSync(source, { loader: "ts", format: "esm" });
  const { POST } = await import(`data:text/javascript,${encodeURIComponent(code)}`);

  const stopping = new AbortController();
  const body = { id: "1", messages: [{ id: "1", role: "user", parts: [{ type: "text", text: asked.text }] }], ...asked.body };
  const request = new Request("http://localhost:3000/api/chat", {
    method: "POST",
    body: JSON.stringify(body),
    signal: stopping.signal,
  });
  const response = await POST(request);
  let text = "";
  try {
    for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
      text += piece;
      if (asked.abortAtText && text.includes("text-delta")) stopping.abort();
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
  print({ status: response.status, type: response.headers.get("content-type"), text });
}
