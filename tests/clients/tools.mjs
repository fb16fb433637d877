// One question with a tool or for an object through the openai package or the AI SDK; prints what it makes of it.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, jsonSchema, stepCountIs, streamObject, streamText, tool } from "ai";
import OpenAI from "openai";

export async function run(asked, print) {
  const settings = { baseURL: `${asked.url}/v1`, apiKey: asked.key };
  const name = "vectorforge";
  const schema = {
    type: "object",
    properties: { hours: { type: "integer" }, place: { type: "string" } },
    required: ["hours", "place"],
    additionalProperties: false,
  };
  const parameters = {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  };
  const clock = ({ city }) => `noon in ${city}`;

  async function openai() {
    const client = new OpenAI({ ...settings, maxRetries: 0 });
    const runner = client.chat.completions.runTools({
      model: name,
      stream: asked.stream,
      messages: [{ role: "user", content: asked.text }],
      tools: [{ type: "function", function: { name: "clock", parameters, parse: JSON.parse, function: clock } }],
    });
    return { text: await runner.finalContent() };
  }

  const models = {
    chat: () => createOpenAI(settings).chat(name),
    responses: () => createOpenAI(settings).responses(name),
    compatible: () => createOpenAICompatible({ ...settings, name: "vectorforge", supportsStructuredOutputs: true })(name),
  };

  async function sdk() {
    const query = {
      model: models[asked.client](),
      prompt: asked.text,
      maxRetries: 0,
      providerOptions: { openai: asked.store === undefined ? {} : { store: asked.store } },
    };
    if (asked.object) {
      const wanted = { ...query, schema: jsonSchema(schema) };
      if (!asked.stream) return (await generateObject(wanted)).object;
      const streamed = streamObject(wanted);
      for await (const _ of streamed.partialObjectStream);
      return await streamed.object;
    }
    const tools = { clock: tool({ description: "Time in a city.", inputSchema: jsonSchema(parameters), execute: clock }) };
    const stopWhen = stepCountIs(3);
    const result = asked.stream ? streamText({ ...query, tools, stopWhen }) : await generateText({ ...query, tools, stopWhen });
    if (asked.stream) await result.consumeStream();
    const steps = await result.steps;
    const output = { text: await result.text, reasons: steps.map((step) => step.finishReason) };
    if (!asked.then) return output;
    const made = steps.flatMap((step) => step.response.messages);
    const earlier = [{ role: "user", content: asked.text }, ...made, { role: "user", content: asked.then }];
    const { prompt: _, ...rest } = query;
    return { ...output, then: (await generateText({ ...rest, messages: earlier, tools, stopWhen })).text };
  }

  print(await (asked.client === "openai" ? openai() : sdk()));
}
