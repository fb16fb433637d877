// Parts that VectorForge sends in addition to the AI SDK's own; see docs/use/ai-sdk.md.
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

/** VectorForge's data about a source: its number in the text, and an excerpt of the chunk. */
export type SourceDetails = { number: number; snippet?: string; heading?: string | null; verdict?: string };

export function detailsOf(source: { providerMetadata?: Record<string, unknown> }): SourceDetails {
  return source.providerMetadata?.vectorforge as SourceDetails;
}

export function isSource(part: Part): part is SourcePart {
  return part.type === "source-url" || part.type === "source-document";
}

/** Return the sentence to show: the error's message is a problem document before a stream, a sentence inside one. */
export function sentenceOf(error: Error): string {
  try {
    const problem = JSON.parse(error.message) as { detail?: unknown };
    return typeof problem.detail === "string" ? problem.detail : error.message;
  } catch {
    return error.message;
  }
}
