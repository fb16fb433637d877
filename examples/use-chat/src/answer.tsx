import { useState } from "react";
import {
  type ChatMessage,
  type Citation,
  type SourcePart,
  type TextPart,
  detailsOf,
  isSource,
} from "./messages";

/** An answer: its text with citations that open their chunks, its sources, and its cost. */
export function Answer({ message }: { message: ChatMessage }) {
  const [opened, setOpened] = useState<Citation>();
  const sources = message.parts.filter(isSource);
  const degraded = message.parts.filter((part) => part.type === "data-degraded");
  return (
    <article className="answer">
      {message.parts.map((part, index) =>
        part.type === "text" ? <CitedText key={index} part={part} opened={opened} open={setOpened} /> : null,
      )}
      {opened && <Passage citation={opened} close={() => setOpened(undefined)} />}
      {degraded.map((part, index) => (
        <p className="note" key={index}>
          Not the full answer: {part.data.step} ({part.data.reason}).
        </p>
      ))}
      {sources.length > 0 && <Sources sources={sources} />}
      <Foot message={message} />
    </article>
  );
}

/** The offsets of citations count UTF-16 units, as `slice` does. */
function CitedText(props: { part: TextPart; opened?: Citation; open: (citation: Citation) => void }) {
  const { part, opened, open } = props;
  const pieces = [];
  let end = 0;
  for (const citation of part.citations ?? []) {
    const { startIndex = end, endIndex = startIndex } = citation;
    pieces.push(<Formatted key={`before ${startIndex}`} text={part.text.slice(end, startIndex)} />);
    pieces.push(
      <button
        key={startIndex}
        className={`cite ${detailsOf(citation.source).verdict}`}
        aria-expanded={citation === opened}
        title={`${citation.source.title} (${detailsOf(citation.source).verdict})`}
        onClick={() => open(citation)}
      >
        {part.text.slice(startIndex, endIndex)}
      </button>,
    );
    end = endIndex;
  }
  pieces.push(<Formatted key="rest" text={part.text.slice(end)} />);
  return <p className="text">{pieces}</p>;
}

/** Text with its **bold** Markdown; any other markup in it stays text. */
function Formatted({ text }: { text: string }) {
  const pieces = text.split(/\*\*([^*\n]+)\*\*/);
  return <>{pieces.map((piece, index) => (index % 2 ? <b key={index}>{piece}</b> : piece))}</>;
}

function Passage({ citation, close }: { citation: Citation; close: () => void }) {
  return (
    <aside className="passage" aria-label="Cited passage">
      <header>
        <b>{citation.source.title}</b>
        <span>{detailsOf(citation.source).verdict}</span>
        <button onClick={close}>Close</button>
      </header>
      <blockquote>{citation.citedText}</blockquote>
    </aside>
  );
}

function Sources({ sources }: { sources: SourcePart[] }) {
  return (
    <details className="sources">
      <summary>
        {sources.length} {sources.length === 1 ? "source" : "sources"}
      </summary>
      <ol>
        {sources.map((source) => (
          <li key={source.sourceId} value={detailsOf(source).number}>
            {source.type === "source-url" ? (
              <a href={source.url} target="_blank" rel="noreferrer">
                {source.title}
              </a>
            ) : (
              <b>{source.title}</b>
            )}
            <p>{detailsOf(source).snippet}</p>
          </li>
        ))}
      </ol>
    </details>
  );
}

function Foot({ message }: { message: ChatMessage }) {
  const { extractive, cached, usage } = message.metadata ?? {};
  if (!usage) return null;
  const said = [
    extractive ? "Quoted, no model wrote this" : `${usage.totalTokens} tokens`,
    cached ? "answered before" : "",
  ];
  return <p className="foot">{said.filter(Boolean).join(" · ")}</p>;
}
