import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { type FormEvent, type KeyboardEvent, useMemo, useState } from "react";
import { Answer } from "./answer";
import { type ChatMessage, sentenceOf } from "./messages";

/** A chat; the transport's `body` accepts the fields in docs/use/ai-sdk.md: filters, top_k and so on. */
export function ChatPage({ collection }: { collection?: string }) {
  const transport = useMemo(
    () => new DefaultChatTransport<ChatMessage>({ api: "/api/chat", body: { collection } }),
    [collection],
  );
  const chat = useChat<ChatMessage>({ transport });
  const isBusy = chat.status === "submitted" || chat.status === "streaming";
  return (
    <>
      <main aria-busy={isBusy}>
        {chat.messages.length === 0 && <h1>Ask your documents</h1>}
        {chat.messages.map((message) =>
          message.role === "user" ? (
            <Question key={message.id} message={message} />
          ) : (
            <Answer key={message.id} message={message} />
          ),
        )}
        {chat.status === "submitted" && <p className="note">Searching…</p>}
        {chat.error && (
          <div className="problem" role="alert">
            <p>{sentenceOf(chat.error)}</p>
            <button onClick={() => chat.regenerate()}>Try again</button>
          </div>
        )}
      </main>
      <Composer isBusy={isBusy} send={(text) => chat.sendMessage({ text })} stop={chat.stop} />
    </>
  );
}

function Question({ message }: { message: ChatMessage }) {
  return <h2>{message.parts.map((part) => (part.type === "text" ? part.text : ""))}</h2>;
}

function Composer(props: { isBusy: boolean; send: (text: string) => void; stop: () => void }) {
  const [text, setText] = useState("");
  const submit = (event: FormEvent | KeyboardEvent) => {
    event.preventDefault();
    if (props.isBusy || !text.trim()) return;
    props.send(text.trim());
    setText("");
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) submit(event);
  };
  return (
    <form onSubmit={submit}>
      <textarea
        aria-label="Question"
        placeholder="Ask a question"
        rows={1}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {props.isBusy ? (
        <button type="button" onClick={props.stop}>
          Stop
        </button>
      ) : (
        <button type="submit" disabled={!text.trim()}>
          Ask
        </button>
      )}
    </form>
  );
}
