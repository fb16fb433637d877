// Serves the built page and proxies queries: page and API have one origin, and the key stays here.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

const vectorforge = process.env.VECTORFORGE_URL ?? "http://localhost:8000";
const key = process.env.VECTORFORGE_API_KEY;
const questions = ["/api/chat", "/v1/rag/query"];
const files = {
  "/": ["dist/index.html", "text/html; charset=utf-8"],
  "/main.js": ["dist/main.js", "text/javascript"],
  "/main.js.map": ["dist/main.js.map", "application/json"],
  "/style.css": ["dist/style.css", "text/css"],
  "/fetch_reader.html": ["../fetch_reader.html", "text/html; charset=utf-8"],
};

async function passOn(path, request, response) {
  const gone = new AbortController(); // stop() in the page closes this connection: also close the upstream one
  response.on("close", () => gone.abort());
  const headers = { "content-type": request.headers["content-type"] ?? "" };
  // VectorForge uses this header to reject requests from other sites' pages on a laptop.
  if (request.headers["sec-fetch-site"]) headers["sec-fetch-site"] = request.headers["sec-fetch-site"];
  if (key) headers["authorization"] = `Bearer ${key}`;
  const answer = await fetch(vectorforge + path, {
    method: "POST",
    headers,
    body: Readable.toWeb(request),
    duplex: "half",
    signal: gone.signal,
  });
  response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" });
  await pipeline(Readable.fromWeb(answer.body), response);
}

async function serve(request, response) {
  const path = new URL(request.url, "http://localhost").pathname;
  if (questions.includes(path) && request.method === "POST") return passOn(path, request, response);
  const [name, type] = files[path] ?? [];
  if (!name) return response.writeHead(404).end();
  const content = await readFile(new URL(name, import.meta.url));
  response.writeHead(200, { "content-type": type }).end(content);
}

const server = createServer((request, response) => {
  serve(request, response).catch((error) => {
    if (response.destroyed) return;
    if (response.headersSent) return response.destroy(); // a partial answer must not look complete
    response.writeHead(502, { "content-type": "application/json" });
    response.end(JSON.stringify({ detail: `VectorForge cannot be reached at ${vectorforge}.` }));
    console.error(error.message);
  });
});
server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
