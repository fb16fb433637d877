// A page of another origin: `fetch`, the openai client and useChat against the server that its address names.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import OpenAI from "openai";
import { createRoot } from "react-dom/client";

const { server, key } = Object.fromEntries(new URLSearchParams(location.search));
const authorization = `Bearer ${key}`;

async function askWithFetch({ path, body, headers, method = "POST" }) {
  const response = await fetch(server + path, {
    method,
    headers: { "content-type": "application/json", authorization, ...headers },
    body: body && JSON.stringify(body),
  });
  const pieces = [];
  const decoder = new TextDecoder();
  for await (const piece of response.body) pieces.push(decoder.decode(piece, { stream: true }));
  return { status: response.status, headers: Object.fromEntries(response.headers), pieces };
}

async function askWithOpenAI(question, apiKey = key) {
  const client = new OpenAI({ baseURL: `${server}/v1`, apiKey, dangerouslyAllowBrowser: true, maxRetries: 0 });
  try {
    const stream = await client.chat.completions.create({
      model: "vectorforge",
      messages: [{ role: "user", content: question }],
      stream: true,
    });
    const pieces = [];
    for await (const chunk of stream) pieces.push(chunk.choices[0]?.delta?.content ?? "");
    const models = await client.models.list();
    return { pieces, models: models.data.map((model) => model.id) };
  } catch (error) {
    return { name: error.constructor.name, status: error.status, requestID: error.requestID };
  }
}

function Chat() {
  const transport = new DefaultChatTransport({ api: `${server}/api/chat`, headers: { authorization } });
  const { messages, sendMessage, status, error } = useChat({ transport });
  window.sendMessage = (text) => sendMessage({ text });
  const answer = messages.filter((message) => message.role === "assistant").flatMap((message) => message.parts);
  return (
    <main>
      <p id="status">{status}</p>
      <p id="error">{error?.message}</p>
      <p id="answer">{answer.filter((part) => part.type === "text").map((part) => part.text)}</p>
      <p id="sources">{answer.filter((part) => part.type === "source-document").length}</p>
    </main>
  );
}

window.askWithFetch = askWithFetch;
window.askWithOpenAI = askWithOpenAI;
createRoot(document.body.appendChild(document.createElement("div"))).render(<Chat />);
