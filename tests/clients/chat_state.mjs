// The state behind `useChat` (class `Chat` of @ai-sdk/react), which takes steps; prints what it holds after each.
import { Chat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";

export async function run(asked, print) {
  const seen = [];
  const chat = new Chat({
    transport: new DefaultChatTransport({
      api: `${asked.url}/api/chat`,
      headers: { authorization: `Bearer ${asked.key}` },
      body: asked.body,
    }),
    onData: (part) => seen.push(part),
    onError: () => {},
  });
  const after = [];
  for (const step of asked.steps) {
    if (step.send) await chat.sendMessage({ text: step.send });
    if (step.regenerate) await chat.regenerate();
    if (step.sendAndStop) {
      const sending = chat.sendMessage({ text: step.sendAndStop });
      const hasText = () => chat.lastMessage.parts.some((part) => part.type === "text" && part.text);
      while (chat.status !== "streaming" || !hasText()) await new Promise((resolve) => setTimeout(resolve, 5));
      await chat.stop();
      await sending;
    }
    after.push({ status: chat.status, error: chat.error?.message ?? null, messages: structuredClone(chat.messages) });
  }
  print({ after, seen });
}
