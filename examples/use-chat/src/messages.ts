// What VectorForge sends beside the AI SDK's own parts; docs/use/ai-sdk.md lists all of it.
import type { UIMessage } from "ai";

export type AnswerMetadata = {
  extractive?: boolean;
  cached?: boolean;
  usage?: { inputTokens: number; outputTokens: number; totalTokens: number };
};

export type AnswerData = {
  degraded: { step: string; reason: string };
  problem: { code: string; status: number; requestId: string };
};

export type ChatMessage = UIMessage<AnswerMetadata, AnswerData>;
type Part = ChatMessage["parts"][number];
export type TextPart = Extract<Part, { type: "text" }>;
export type Citation = NonNullable<TextPart["citations"]>[number];
export type SourcePart = Extract<Part, { type: "source-url" | "source-document" }>;

/** What VectorForge says of a source: its number in the text, and a piece of the passage. */
export type SourceDetails = { number: number; snippet?: string; heading?: string | null; verdict?: string };

export function detailsOf(source: { providerMetadata?: Record<string, unknown> }): SourceDetails {
  return source.providerMetadata?.vectorforge as SourceDetails;
}

export function isSource(part: Part): part is SourcePart {
  return part.type === "source-url" || part.type === "source-document";
}

/** The sentence to show: before a stream the error's message is a problem document, inside a stream a sentence. */
export function sentenceOf(error: Error): string {
  try {
    const problem = JSON.parse(error.message) as { detail?: unknown };
    return typeof problem.detail === "string" ? problem.detail : error.message;
  } catch {
    return error.message;
  }
}
