// One question through a provider package of the AI SDK, whole or streamed; prints what the SDK makes of the answer.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

export async function run(asked, print) {
  const settings = { baseURL: `${asked.url}/v1`, apiKey: asked.key };
  const name = asked.model ?? "vectorforge";
  const models = {
    chat: () => createOpenAI(settings).chat(name),
    responses: () => createOpenAI(settings).responses(name),
    compatible: () =>
      createOpenAICompatible({
        ...settings,
        name: "vectorforge",
        includeUsage: true,
        transformRequestBody: (body) => ({ ...body, ...asked.body }),
      })(name),
  };
  const tools = asked.fileSearch ? { file_search: createOpenAI(settings).tools.fileSearch(asked.fileSearch) } : undefined;
  const failureOf = ({ name, statusCode, message }) => ({ name, status: statusCode, message });
  const abort = new AbortController();
  const question = {
    model: models[asked.provider](),
    abortSignal: abort.signal,
    maxRetries: 0,
    tools,
    instructions: asked.instructions,
    ...(asked.messages ? { messages: asked.messages } : { prompt: asked.text }),
  };
  const errors = [];

  async function whole() {
    const { text, sources, usage, finishReason, content } = await generateText(question);
    return { text, sources, usage, finishReason, content };
  }

  async function streamed() {
    const result = streamText({ ...question, onError: ({ error }) => errors.push(failureOf(error)) });
    const types = [];
    let text = "";
    for await (const part of result.fullStream) {
      types.push(part.type);
      if (part.type !== "text-delta") continue;
      text += part.text;
      if (asked.abortAtText) {
        print({ aborting: true });
        abort.abort();
      }
    }
    if (errors.length || abort.signal.aborted) return { text, types, errors };
    const [sources, usage, finishReason, content] = await Promise.all([
      result.sources,
      result.usage,
      result.finishReason,
      result.content,
    ]);
    return { text, types, errors, sources, usage, finishReason, content };
  }

  try {
    print(await (asked.stream ? streamed() : whole()));
  } catch (error) {
    print({ failed: failureOf(error) });
  }
}
